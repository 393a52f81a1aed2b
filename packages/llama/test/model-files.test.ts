import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openLlamaBackend, openTokenizer } from "../src/index.ts";
import { tinyModelPath } from "../../../fixtures/tiny-models.ts";

let directory: string;

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), "kvasir-models-"));
  const good = readFileSync(tinyModelPath("tiny-qwen3"));
  const unknown = Buffer.from(good);
  unknown.write("qwenX", unknown.indexOf("qwen3"));
  const files: Record<string, Uint8Array> = {
    "no-weights.gguf": good.subarray(0, good.length >> 1),
    "half-a-header.gguf": good.subarray(0, 1000),
    "empty.gguf": Buffer.alloc(0),
    "text.gguf": Buffer.from("this is no model at all, only a text with a misleading name"),
    "unknown.gguf": unknown,
  };
  for (const [name, bytes] of Object.entries(files)) writeFileSync(join(directory, name), bytes);
});

afterAll(() => rmSync(directory, { recursive: true }));

const open = (modelPath: string) => openLlamaBackend({ modelPath, laneCount: 1, laneTokens: 256, threads: 1 });

test.each([
  ["absent.gguf", "model_file_missing", /does not exist/],
  ["no-weights.gguf", "model_file_truncated", /not within the file bounds|corrupted or incomplete/],
  ["half-a-header.gguf", "model_file_invalid", /cannot be loaded: .+\. Use a GGUF file/],
  ["empty.gguf", "model_file_invalid", /cannot be loaded/],
  ["text.gguf", "model_file_invalid", /invalid magic|bad magic/],
  ["unknown.gguf", "model_architecture_unknown", /unknown model architecture: 'qwenX'/],
])("%s is refused as %s with libllama's reason", async (name, code, message) => {
  const path = join(directory, name);
  await expect(open(path)).rejects.toMatchObject({ code, message: expect.stringMatching(message) });
  await expect(open(path)).rejects.toThrow(path);
  if (name !== "no-weights.gguf") await expect(openTokenizer(path)).rejects.toMatchObject({ code });
});

test("after a model that failed another one loads", async () => {
  await expect(open(join(directory, "text.gguf"))).rejects.toThrow(/cannot be loaded/);
  const backend = await open(tinyModelPath("tiny-draft"));
  expect(backend.facts.vocabSize).toBe(278);
  await backend.close();
});
