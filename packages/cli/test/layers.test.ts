import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";

let root = "";
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "kvasir-layers-"));
  cpSync(fileURLToPath(new URL("../../../scripts", import.meta.url)), join(root, "scripts"), { recursive: true });
  write("packages/kit/package.json", JSON.stringify({ exports: { ".": "./src/index.ts" } }));
  write("packages/kit/src/index.ts", "export const one = 1;\n");
  write(
    "packages/engine/package.json",
    JSON.stringify({ exports: { ".": "./src/index.ts" }, dependencies: { "@kvasir/kit": "0" } }),
  );
  write("packages/engine/src/index.ts", 'export * from "./lane.ts";\nexport { one } from "@kvasir/kit";\n');
  write("packages/engine/src/lane.ts", "export const lane = 0;\n");
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function write(path: string, text: string): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
}

/** What the check prints; empty when all is well. */
function problems(): string {
  const { stdout, status } = spawnSync(process.execPath, [join(root, "scripts", "check-layers.mjs")], { encoding: "utf8" });
  expect(status).toBe(stdout === "" ? 0 : 1);
  return stdout;
}

test("arrows that the table allows pass", () => {
  expect(problems()).toBe("");
});

test.each([
  [
    "an arrow against the table",
    "packages/kit/src/clock.ts",
    'import { lane } from "@kvasir/engine";',
    "kit/src/clock.ts imports @kvasir/engine",
  ],
  [
    "a type import against the table",
    "packages/kit/src/clock.ts",
    'import type { Lane } from "@kvasir/engine";',
    "kit/src/clock.ts imports @kvasir/engine",
  ],
  [
    "a dynamic import against the table",
    "packages/kit/src/clock.ts",
    'await import("@kvasir/engine");',
    "kit/src/clock.ts imports @kvasir/engine",
  ],
  [
    "an import that is not declared",
    "packages/llama/src/index.ts",
    'import { one } from "@kvasir/kit";',
    "llama/src/index.ts imports @kvasir/kit",
  ],
  [
    "a path into another package",
    "packages/engine/src/a.ts",
    'import { one } from "../../kit/src/index.ts";',
    "outside its package",
  ],
  [
    "an inner file of another package",
    "packages/engine/src/a.ts",
    'import { one } from "@kvasir/kit/src/clock.ts";',
    "does not export",
  ],
  ["koffi outside llama", "packages/engine/src/a.ts", 'import koffi from "koffi";', "imports koffi; only llama may"],
  [
    "a cycle",
    "packages/engine/src/lane.ts",
    'import "./index.ts";',
    "import cycle: engine/src/index.ts → engine/src/lane.ts → engine/src/index.ts",
  ],
])("%s is found", (_, path, text, problem) => {
  write("packages/llama/package.json", "{}");
  write(path, text);
  expect(problems()).toContain(problem);
});

test("a package that the table does not know is found", () => {
  write("packages/extra/package.json", "{}");
  expect(problems()).toContain("packages/extra is not in the layer table");
});

test("comments and texts that look like imports are none", () => {
  write("packages/kit/src/clock.ts", '// import { a } from "@kvasir/engine";\n/* export * from "@kvasir/engine" */\n');
  expect(problems()).toBe("");
});

test("tests may use dev dependencies and the shared fixtures, sources may not", () => {
  write("fixtures/tiny.ts", "export const tiny = 1;\n");
  const manifest = { exports: { ".": "./src/index.ts" }, devDependencies: { "@kvasir/engine": "0" } };
  write("packages/kit/package.json", JSON.stringify(manifest));
  write(
    "packages/kit/test/a.test.ts",
    'import { lane } from "@kvasir/engine";\nimport { tiny } from "../../../fixtures/tiny.ts";\n',
  );
  expect(problems()).toBe("");
  write("packages/kit/src/a.ts", 'import { tiny } from "../../../fixtures/tiny.ts";\n');
  expect(problems()).toContain("kit/src/a.ts imports ../../../fixtures/tiny.ts, outside its package");
});
