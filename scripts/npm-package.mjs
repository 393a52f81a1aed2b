/**
 * Brings one exact package from the npm registry into `<cache>/runtime/<name>@<version>`, outside any project: the pinned
 * Node, and the GPU builds of libllama that are too large for everybody's `npm ci`.
 *
 * It uses the user's own `npm`, so mirrors, proxies and credentials work and npm checks the integrity. The folder appears by
 * one rename, complete or not at all; when two processes bring the same package, the first rename wins and the other is dropped.
 *
 * Runs on Node 18. Also a command: `node scripts/npm-package.mjs NAME VERSION` prints the folder.
 */

import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** An error that a person can act on: printed without a stack. */
export class BootstrapError extends Error {}

/** `KVASIR_CACHE_DIR`, or the place where caches usually are; the same folder as `cacheFolder` of packages/models. */
export function cacheFolder() {
  return resolve(process.env.KVASIR_CACHE_DIR || join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "kvasir"));
}

/**
 * @param {string} name
 * @param {string} version exact
 */
export function packageFolder(name, version) {
  return join(cacheFolder(), "runtime", `${name.replace("/", "+")}@${version}`);
}

/**
 * Returns the package's folder; downloads it when it is not there.
 * @param {string} name
 * @param {string} version exact
 * @param {{ label: string, wayOut: string }} text what is fetched, and what a person can do instead
 */
export async function bringPackage(name, version, text) {
  const target = packageFolder(name, version);
  if (existsSync(join(target, "package.json"))) return target;
  const runtime = dirname(target);
  try {
    mkdirSync(runtime, { recursive: true });
    removeAbandoned(runtime);
    const partial = mkdtempSync(join(runtime, `.partial-${process.pid}-`));
    try {
      writeFileSync(join(partial, "package.json"), '{ "private": true }\n');
      const arguments_ = [
        "install",
        `${name}@${version}`,
        "--no-save",
        "--no-package-lock",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
      ];
      await runNpm([...arguments_, "--install-strategy=hoisted", "--prefix", partial], partial, text.label);
      publish(join(partial, "node_modules", ...name.split("/")), target);
    } finally {
      rmSync(partial, { recursive: true, force: true });
    }
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new BootstrapError(`${name}@${version} could not be installed in ${runtime}: ${reason}\n${text.wayOut}`);
  }
  return target;
}

/**
 * @param {string} from a complete package folder
 * @param {string} target
 */
function publish(from, target) {
  if (!existsSync(join(from, "package.json")))
    throw new Error("npm reported success but the package is not there (is it built for this platform?)");
  try {
    renameSync(from, target);
  } catch (error) {
    if (!existsSync(join(target, "package.json"))) throw error;
    // Another process published the same version first; ours is dropped with its partial folder.
  }
}

/**
 * Removes the partial folders of processes that no longer live.
 * @param {string} runtime
 */
function removeAbandoned(runtime) {
  for (const name of readdirSync(runtime)) {
    const pid = /^\.partial-(\d+)-/.exec(name)?.[1];
    if (pid !== undefined && !isAlive(Number(pid))) rmSync(join(runtime, name), { recursive: true, force: true });
  }
}

/** @param {number} pid */
export function isAlive(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return /** @type {NodeJS.ErrnoException} */ (error).code === "EPERM";
  }
}

/**
 * Runs the user's npm and shows that it is at work; its output appears only in the error.
 * @param {readonly string[]} arguments_
 * @param {string} cwd
 * @param {string} label
 * @returns {Promise<void>}
 */
export function runNpm(arguments_, cwd, label) {
  const progress = showProgress(label);
  return new Promise((done, fail) => {
    const { command, prefix, shell } = npmCommand();
    const child = spawn(command, [...prefix, ...arguments_], {
      cwd,
      env: environmentForNpm(),
      shell,
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    const keep = (/** @type {Buffer} */ chunk) => {
      output = (output + chunk.toString()).slice(-20_000);
    };
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    child.on("error", (error) => {
      progress.end("failed");
      fail(new Error(`npm could not be started (${error.message}); npm comes with Node, is it on the PATH?`));
    });
    child.on("close", (code, signal) => {
      progress.end(code === 0 ? "done" : "failed");
      if (code === 0) done();
      else fail(new Error(`npm ${arguments_[0]} ended with ${signal ?? `code ${code}`}\n${errorLines(output)}`));
    });
  });
}

/** The npm that runs us, else the one on the PATH. */
function npmCommand() {
  const running = process.env.npm_execpath;
  if (running && basename(running) === "npm-cli.js" && existsSync(running)) {
    return { command: process.env.npm_node_execpath || process.execPath, prefix: [running], shell: false };
  }
  return { command: "npm", prefix: [], shell: process.platform === "win32" };
}

/** An outer `npm run` describes its own project in these variables; the inner npm must not take them for its own. */
function environmentForNpm() {
  const environment = { ...process.env };
  for (const name of Object.keys(environment)) {
    if (
      /^npm_(package_|lifecycle_|config_(local_prefix|prefix|workspaces?|omit|include|global|save|ignore_scripts))/i.test(name)
    )
      delete environment[name];
  }
  return environment;
}

/**
 * What npm said about the error, without warnings and stack lines.
 * @param {string} output
 */
function errorLines(output) {
  const lines = output.split("\n").map((line) => line.replace(/^npm (error|ERR!) ?/, "").trimEnd());
  const telling = lines.filter((line) => line.trim() !== "" && !/^npm (warn|notice)|^\s+at |^[{}]|A complete log/i.test(line));
  return telling
    .slice(0, 12)
    .map((line) => `  ${line}`)
    .join("\n");
}

/**
 * One line on stderr: seconds tick on a terminal, a line every 15 s otherwise.
 * @param {string} label
 */
function showProgress(label) {
  const startedMs = Date.now();
  const seconds = () => Math.round((Date.now() - startedMs) / 1000);
  const terminal = process.stderr.isTTY;
  process.stderr.write(terminal ? `kvasir: ${label} …` : `kvasir: ${label} …\n`);
  const tick = () =>
    process.stderr.write(terminal ? `\r\x1b[Kkvasir: ${label} … ${seconds()} s` : `kvasir: ${label} … ${seconds()} s\n`);
  const timer = setInterval(tick, terminal ? 1000 : 15_000);
  return {
    /** @param {string} outcome */
    end(outcome) {
      clearInterval(timer);
      process.stderr.write(`${terminal ? "\r\x1b[K" : ""}kvasir: ${label}: ${outcome} in ${seconds()} s\n`);
    },
  };
}

async function main() {
  const [name, version] = process.argv.slice(2);
  if (name === undefined || version === undefined) throw new BootstrapError("usage: node scripts/npm-package.mjs NAME VERSION");
  const wayOut = "Check the network and `npm config get registry`, then run the same command again.";
  process.stdout.write(`${await bringPackage(name, version, { label: `fetching ${name}@${version}`, wayOut })}\n`);
}

if (process.argv[1] !== undefined && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  main().catch((error) => {
    process.stderr.write(`kvasir: ${error instanceof BootstrapError ? error.message : error.stack}\n`);
    process.exitCode = 1;
  });
}
