import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Tokenizer } from "@kvasir/engine";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openTokenizer } from "../src/index.ts";
import { tinyModelPath } from "../../../fixtures/tiny-models.ts";

let tokenizer: Tokenizer;
let directory: string;

beforeAll(async () => {
  tokenizer = await openTokenizer(tinyModelPath("tiny-qwen3"));
  directory = mkdtempSync(join(tmpdir(), "kvasir-tokenizer-"));
});

afterAll(() => {
  tokenizer.close();
  rmSync(directory, { recursive: true });
});

const plain = { addSpecial: false, parseSpecial: false };
const parsed = { addSpecial: true, parseSpecial: true };

function textOf(tokens: Iterable<number>, special = true): string {
  return Buffer.concat(Array.from(tokens, (token) => tokenizer.pieceOf(token, { special }))).toString("utf8");
}

test("facts of the vocabulary", () => {
  expect(tokenizer.vocabSize).toBe(278);
  expect(tokenizer.bosToken).toBeNull();
  expect(tokenizer.eosToken).toBe(265);
  expect(tokenizer.controlTexts).toContain("<|im_start|>");
  expect(tokenizer.controlTexts).toHaveLength(9);
  // user-defined tokens are text that anybody may write
  expect(tokenizer.controlTexts).not.toContain("<think>");
});

test("any text comes back byte for byte", async () => {
  await fc.assert(
    fc.asyncProperty(fc.string({ unit: "binary", maxLength: 200 }), fc.boolean(), async (text, parseSpecial) => {
      const tokens = await tokenizer.tokenize(text, { addSpecial: true, parseSpecial });
      expect(textOf(tokens)).toBe(text.toWellFormed());
    }),
  );
});

test("NUL is a character and a lone surrogate becomes U+FFFD", async () => {
  expect([...(await tokenizer.tokenize("a\0b", plain))]).toEqual([97, 0, 98]);
  expect(textOf(await tokenizer.tokenize("x\ud800y\udc00", plain))).toBe("x\ufffdy\ufffd");
});

test("control texts are control tokens only where they are asked for", async () => {
  expect([...(await tokenizer.tokenize("<|im_end|>", parsed))]).toEqual([265]);
  const asText = await tokenizer.tokenize("<|im_end|>", plain);
  expect(asText).not.toContain(265);
  expect(textOf(asText)).toBe("<|im_end|>");
  expect(textOf([265], false)).toBe("");
});

test("empty text has no tokens", async () => {
  expect(await tokenizer.tokenize("", parsed)).toHaveLength(0);
});

test("long text is tokenized beside the event loop, with the same tokens", async () => {
  // digits are never merged with what follows, so the pieces' tokens add up
  const piece = "0123456789".repeat(1000);
  const expected = await tokenizer.tokenize(piece, plain);
  let done = false;
  let turns = 0;
  const turn = () => {
    turns++;
    if (!done) setImmediate(turn);
  };
  const running = tokenizer.tokenize(piece.repeat(20), plain);
  setImmediate(turn);
  const tokens = await running;
  done = true;
  expect(tokens).toHaveLength(expected.length * 20);
  expect(tokens.subarray(-expected.length)).toEqual(expected);
  expect(turns).toBeGreaterThan(0);
});

test("text that needs more tokens than half its bytes gets the room", async () => {
  const text = "\u{1F642}".repeat(30_000); // four single-byte tokens each
  expect(await tokenizer.tokenize(text, plain)).toHaveLength(120_000);
});

test("a token outside the vocabulary is refused", () => {
  for (const token of [-1, 278, 1.5, Number.NaN]) {
    expect(() => tokenizer.pieceOf(token)).toThrow(expect.objectContaining({ code: "invalid_value" }));
  }
});

test("a model that wants BOS gets it once, in front", async () => {
  // the metadata value: key, type 7 (bool), one byte
  const bytes = readFileSync(tinyModelPath("tiny-qwen3"));
  const key = "tokenizer.ggml.add_bos_token";
  bytes[bytes.indexOf(key) + key.length + 4] = 1;
  const path = join(directory, "with-bos.gguf");
  writeFileSync(path, bytes);
  const other = await openTokenizer(path);
  expect(other.bosToken).toBe(263);
  expect([...(await other.tokenize("hi", { addSpecial: true, parseSpecial: false }))]).toEqual([263, 104, 105]);
  expect([...(await other.tokenize("hi", plain))]).toEqual([104, 105]);
  other.close();
});

test("closing waits for the call that runs", async () => {
  const other = await openTokenizer(tinyModelPath("tiny-qwen3"));
  const running = other.tokenize("0123456789".repeat(20_000), plain);
  other.close();
  expect(await running).toHaveLength(200_000);
  await expect(other.tokenize("x", plain)).rejects.toThrow(/closed/);
});
