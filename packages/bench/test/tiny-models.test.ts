import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, expect, test } from "vitest";
import { tinyModelNames, tinyModelPath, unpackInto } from "../../../fixtures/tiny-models.ts";

const modulePath = fileURLToPath(new URL("../../../fixtures/tiny-models.ts", import.meta.url));
const scratch = mkdtempSync(join(tmpdir(), "tiny-models-"));
afterAll(() => rmSync(scratch, { recursive: true }));

test("every-tiny-model-unpacks-to-a-gguf", () => {
  for (const name of tinyModelNames) expect(readFileSync(tinyModelPath(name)).subarray(0, 4).toString()).toBe("GGUF");
});

test("a-damaged-file-is-replaced", () => {
  const folder = mkdtempSync(join(scratch, "damaged-"));
  writeFileSync(join(folder, "tiny-draft.gguf"), "GGUF, but cut off");
  expect(statSync(unpackInto([folder], "tiny-draft")).size).toBe(448_608);
});

test("a-folder-that-cannot-be-written-gives-way-to-the-next", () => {
  const blocked = join(scratch, "a-file");
  writeFileSync(blocked, "");
  const folder = mkdtempSync(join(scratch, "next-"));
  expect(unpackInto([join(blocked, "models"), folder], "tiny-draft")).toBe(join(folder, "tiny-draft.gguf"));
});

test("two-processes-that-unpack-at-once-both-find-it-whole", async () => {
  const folder = mkdtempSync(join(scratch, "both-"));
  const script = `import { unpackInto } from ${JSON.stringify(modulePath)}; console.log(unpackInto([${JSON.stringify(folder)}], "tiny-qwen3"));`;
  const unpack = () => promisify(execFile)(process.execPath, ["--input-type=module", "--eval", script]);
  const outputs = await Promise.all([unpack(), unpack()]);
  const path = join(folder, "tiny-qwen3.gguf");
  expect(outputs.map(({ stdout }) => stdout.trim())).toEqual([path, path]);
  expect(readdirSync(folder)).toEqual(["tiny-qwen3.gguf"]);
});
