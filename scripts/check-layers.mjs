/**
 * Which package may import which, as data, and a check of three things against it:
 *
 *   1. the workspace dependencies that a package declares;
 *   2. the imports that its sources and tests write: allowed, and declared (a test may also use `devDependencies`);
 *   3. that the sources have no import cycle, in or across packages. Type imports count.
 */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";

const root = resolve(import.meta.dirname, "..");
const scope = "@kvasir/";

/** @type {Record<string, readonly string[]>} */
const layers = {
  kit: [],
  wire: ["kit"],
  planner: ["kit"],
  engine: ["kit"],
  llama: ["engine", "kit"],
  models: ["wire", "kit"],
  server: ["wire", "engine", "models", "planner", "kit"],
  bench: ["wire", "planner", "kit"],
  agent: ["wire", "kit"],
  console: ["wire"],
  cli: ["kit", "wire", "planner", "engine", "llama", "models", "server", "bench", "agent", "console"],
};

/** Packages that may import `wire` for its types alone. */
const typesOnly = new Set(["console"]);
/** Only these may import the foreign function interface. */
const ffiImporters = new Set(["llama"]);

/** Folders outside the packages whose files tests may import. */
const sharedByTests = [join(root, "fixtures")];

const importPattern =
  /(?:^|[;}\s])(import|export)\s+(type\s)?[^'"`;()]*?\bfrom\s*["']([^"']+)["']|(?:^|[;}\s])import\s*["']([^"']+)["']|\bimport\s*\(\s*["']([^"']+)["']/g;

/** @type {string[]} */
const problems = [];
/** Source file → source files it imports. @type {Map<string, string[]>} */
const graph = new Map();

/** @param {string} folder @returns {string[]} */
function sourcesIn(folder) {
  if (!existsSync(folder)) return [];
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name));
}

/** @param {string} file */
function importsOf(file) {
  const text = readFileSync(file, "utf8").replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, "");
  return [...text.matchAll(importPattern)].map((match) => ({
    target: match[3] ?? match[4] ?? match[5] ?? "",
    isType: match[2] !== undefined,
  }));
}

/** @param {string} packageName @param {string} specifier */
function entryOf(packageName, specifier) {
  const subpath = `.${specifier.slice(scope.length + packageName.length)}`;
  const manifest = JSON.parse(readFileSync(join(root, "packages", packageName, "package.json"), "utf8"));
  const target = manifest.exports?.[subpath];
  return typeof target === "string" ? join(root, "packages", packageName, target) : undefined;
}

/** @param {string} name */
function checkPackage(name) {
  const folder = join(root, "packages", name);
  const allowed = layers[name];
  if (allowed === undefined) {
    problems.push(`packages/${name} is not in the layer table of scripts/check-layers.mjs`);
    return;
  }
  const manifest = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  for (const dependency of Object.keys(manifest.dependencies ?? {}).filter((each) => each.startsWith(scope))) {
    const target = dependency.slice(scope.length);
    if (!allowed.includes(target))
      problems.push(
        `packages/${name}/package.json depends on ${dependency}; ${name} may use: ${allowed.join(", ") || "nothing"}`,
      );
  }
  const declared = new Set(Object.keys(manifest.dependencies ?? {}));
  const forTests = new Set([...declared, ...Object.keys(manifest.devDependencies ?? {})]);
  for (const file of sourcesIn(join(folder, "src"))) {
    graph.set(
      file,
      checkFile(file, name, (target) => allowed.includes(target) && declared.has(scope + target)),
    );
  }
  for (const file of sourcesIn(join(folder, "test"))) checkFile(file, name, (target) => forTests.has(scope + target));
}

/**
 * Reports what the file must not import and returns the source files that it imports.
 * @param {string} file
 * @param {string} owner package of the file
 * @param {(packageName: string) => boolean} mayImport
 */
function checkFile(file, owner, mayImport) {
  const shown = relative(root, file);
  /** @type {string[]} */
  const targets = [];
  for (const { target, isType } of importsOf(file)) {
    if (target.startsWith(".")) {
      const path = resolve(dirname(file), target);
      const isShared = sharedByTests.some(
        (folder) => path.startsWith(folder) && file.startsWith(join(root, "packages", owner, "test")),
      );
      if (!isShared && !path.startsWith(join(root, "packages", owner)))
        problems.push(`${shown} imports ${target}, outside its package`);
      targets.push(path);
    } else if (target.startsWith(scope)) {
      const packageName = target.slice(scope.length).split("/")[0] ?? "";
      if (packageName !== owner && !mayImport(packageName))
        problems.push(`${shown} imports ${target}, which its package.json does not declare or the layer table does not allow`);
      if (typesOnly.has(owner) && !isType) problems.push(`${shown} imports ${target} as a value; only types are allowed`);
      const entry = existsSync(join(root, "packages", packageName)) ? entryOf(packageName, target) : undefined;
      if (entry === undefined) problems.push(`${shown} imports ${target}, which that package does not export`);
      else targets.push(entry);
    } else if (target === "koffi" && !ffiImporters.has(owner)) {
      problems.push(`${shown} imports koffi; only ${[...ffiImporters].join(", ")} may`);
    }
  }
  return targets;
}

/** Depth-first search; a file that is met again on the current path closes a cycle. */
function findCycles() {
  /** @type {Map<string, "open" | "closed">} */
  const states = new Map();
  /** @type {string[]} */
  const path = [];
  /** @param {string} file */
  const visit = (file) => {
    if (states.get(file) === "closed") return;
    if (states.get(file) === "open") {
      const cycle = [...path.slice(path.indexOf(file)), file].map((each) => relative(join(root, "packages"), each));
      problems.push(`import cycle: ${cycle.join(" → ")}`);
      return;
    }
    states.set(file, "open");
    path.push(file);
    for (const target of graph.get(file) ?? []) visit(target);
    path.pop();
    states.set(file, "closed");
  };
  for (const file of graph.keys()) visit(file);
}

for (const name of readdirSync(join(root, "packages"))) {
  if (existsSync(join(root, "packages", name, "package.json"))) checkPackage(name);
}
findCycles();
for (const problem of problems) process.stdout.write(`${problem}\n`);
if (problems.length > 0) process.exitCode = 1;
