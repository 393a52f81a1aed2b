import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";

const scripts = fileURLToPath(new URL("../../../scripts", import.meta.url));

/** A clone with a dependency that needs no registry: a package in the repository. */
let root = "";
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "kvasir-clone-"));
  cpSync(scripts, join(root, "scripts"), { recursive: true });
  mkdirSync(join(root, "packages", "kit"), { recursive: true });
  const manifest = { name: "clone", version: "1.0.0", private: true, workspaces: ["packages/*"] };
  const kit = { name: "@clone/kit", version: "1.0.0" };
  const packages = { "": manifest, "node_modules/@clone/kit": { resolved: "packages/kit", link: true }, "packages/kit": kit };
  writeJson("package.json", manifest);
  writeJson("packages/kit/package.json", kit);
  writeJson("package-lock.json", { name: "clone", version: "1.0.0", lockfileVersion: 3, requires: true, packages });
  writeFileSync(join(root, ".npmrc"), "audit=false\n");
  writeFileSync(join(root, "hello.mjs"), 'console.log("hello", process.argv.slice(2).join(" "));\n');
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function writeJson(path: string, content: object): void {
  writeFileSync(join(root, path), JSON.stringify(content));
}

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function bootstrap(arguments_: readonly string[], environment: Record<string, string> = {}): Promise<Ended> {
  const env = { ...process.env, npm_execpath: "", npm_config_offline: "true", ...environment };
  const child = spawn(process.execPath, [join(root, "scripts", "bootstrap.mjs"), ...arguments_], { env });
  const texts = { stdout: "", stderr: "" };
  child.stdout.on("data", (chunk: Buffer) => (texts.stdout += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (texts.stderr += chunk.toString()));
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => resolve({ code, ...texts }));
  });
}

const isInstalled = (): boolean => existsSync(join(root, "node_modules", "@clone", "kit", "package.json"));

test("a fresh clone installs once, and the next start does not", async () => {
  const first = await bootstrap(["hello.mjs", "a", "--b"]);
  expect([first.code, first.stdout, isInstalled()]).toEqual([0, "hello a --b\n", true]);
  expect(first.stderr).toContain("installing the dependencies of the lockfile: done");
  const second = await bootstrap(["hello.mjs"]);
  expect([second.code, second.stderr]).toEqual([0, ""]);
});

test("dependencies that changed, or are gone, are installed again", async () => {
  await bootstrap(["hello.mjs"]);
  rmSync(join(root, "node_modules"), { recursive: true });
  expect((await bootstrap(["hello.mjs"])).stderr).toContain("done");
  expect(isInstalled()).toBe(true);
  writeFileSync(join(root, ".bootstrap", "incomplete"), "");
  expect((await bootstrap(["hello.mjs"])).stderr).toContain("done");
});

test("two starts at once install one after the other, and both run", async () => {
  const [first, second] = await Promise.all([bootstrap(["hello.mjs", "1"]), bootstrap(["hello.mjs", "2"])]);
  expect([first.stdout, second.stdout, isInstalled()]).toEqual(["hello 1\n", "hello 2\n", true]);
  const installs = [first, second].filter(({ stderr }) => stderr.includes("lockfile: done"));
  expect(installs).toHaveLength(1);
  expect(readdirSync(join(root, ".bootstrap"))).toEqual([]);
});

test("the lock of a process that is gone is broken", async () => {
  const child = spawn(process.execPath, ["--version"]);
  await new Promise((resolve) => child.on("close", resolve));
  mkdirSync(join(root, ".bootstrap"));
  writeFileSync(join(root, ".bootstrap", "install.lock"), String(child.pid));
  expect((await bootstrap(["hello.mjs"])).stdout).toBe("hello \n");
});

test("a registry that cannot be reached is told with what failed and the way out", async () => {
  const kit = { name: "@clone/kit", version: "1.0.0", dependencies: { "not-in-any-cache": "1.0.0" } };
  const packages = {
    "": { name: "clone", version: "1.0.0", workspaces: ["packages/*"] },
    "node_modules/@clone/kit": { resolved: "packages/kit", link: true },
  };
  writeJson("packages/kit/package.json", kit);
  const needed = { "packages/kit": kit, "node_modules/not-in-any-cache": { version: "1.0.0" } };
  writeJson("package-lock.json", {
    name: "clone",
    version: "1.0.0",
    lockfileVersion: 3,
    requires: true,
    packages: { ...packages, ...needed },
  });
  const ended = await bootstrap(["hello.mjs"], { npm_config_cache: join(root, "empty-cache") });
  expect([ended.code, ended.stdout]).toEqual([1, ""]);
  expect(ended.stderr).toMatch(/the dependencies could not be installed: npm ci ended with code 1\n.*not-in-any-cache/s);
  expect(ended.stderr).toContain("Way out: check the network");
  expect(ended.stderr).not.toContain("    at ");
});

test("a machine without npm is told so", async () => {
  const ended = await bootstrap(["hello.mjs"], { PATH: "/nowhere" });
  expect([ended.code, ended.stderr]).toEqual([1, expect.stringContaining("npm could not be started")]);
});

test("the script's exit code is the command's, and an unknown command is told", async () => {
  writeFileSync(join(root, "seven.mjs"), "process.exitCode = 7;\n");
  expect((await bootstrap(["seven.mjs"])).code).toBe(7);
  const unknown = await bootstrap(["bulid"]);
  expect([unknown.code, unknown.stderr]).toEqual([
    1,
    expect.stringContaining("bulid is neither one of start, kvasir, test, check nor a script"),
  ]);
});
