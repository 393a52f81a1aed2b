/**
 * `npm run check`: format, lint, types, layers, dead code. Every step runs, also after a failed one; only failures print.
 * `npm run check -- --fix` formats and applies the safe lint fixes first.
 */

import { spawnSync } from "node:child_process";
import { join, resolve } from "node:path";

const root = resolve(import.meta.dirname, "..");

/** @type {ReadonlyArray<readonly [name: string, script: string, ...arguments_: string[]]>} */
const steps = [
  ["format", "node_modules/@biomejs/biome/bin/biome", "format", "--max-diagnostics=20"],
  ["lint", "node_modules/oxlint/bin/oxlint", "--type-aware", "--deny-warnings"],
  ["types", "node_modules/typescript/bin/tsc", "-p", "."],
  ["layers", "scripts/check-layers.mjs"],
  ["dead code", "node_modules/knip/bin/knip.js", "--no-progress"],
];

/** @param {readonly string[]} command a script of `root` and its arguments */
function run([script = "", ...rest]) {
  return spawnSync(process.execPath, [join(root, script), ...rest], { cwd: root, encoding: "utf8" });
}

if (process.argv.includes("--fix")) {
  run(["node_modules/@biomejs/biome/bin/biome", "format", "--write"]);
  run(["node_modules/oxlint/bin/oxlint", "--type-aware", "--fix"]);
}

/** @type {string[]} */
const failed = [];
for (const [name, ...command] of steps) {
  const startedMs = performance.now();
  const result = run(command);
  const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
  const passed = result.status === 0;
  if (!passed) {
    failed.push(name);
    process.stdout.write(`${result.stdout}${result.stderr}${result.error?.message ?? ""}\n`);
  }
  process.stdout.write(`${passed ? "ok    " : "FAILED"} ${name} (${seconds} s)\n`);
}
if (failed.length > 0) {
  process.stdout.write(`check failed: ${failed.join(", ")}\n`);
  process.exitCode = 1;
}
