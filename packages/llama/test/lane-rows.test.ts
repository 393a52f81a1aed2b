import { type Backend, Batch, type LanePiece, type LaneRows } from "@kvasir/engine";
import { describe, expect, test } from "vitest";
import { type TinyModelName, tinyModelPath } from "../../../fixtures/tiny-models.ts";
import { openLlamaBackend } from "../src/index.ts";

const open = async (model: TinyModelName) => {
  const backend = await openLlamaBackend({
    modelPath: tinyModelPath(model),
    laneCount: 3,
    laneTokens: 768,
    batchTokens: 256,
    threads: 1,
  });
  const opened = await backend.openRows();
  return { backend, opened };
};

async function openRows(model: TinyModelName): Promise<{ backend: Backend; rows: LaneRows }> {
  const { backend, opened } = await open(model);
  if (!("rows" in opened)) throw new Error(opened.refusal);
  return { backend, rows: opened.rows };
}

const promptOf = (seed: number, length: number) => Array.from({ length }, (_, index) => (seed * 37 + index * index * 7) % 256);

async function feed(backend: Backend, lane: number, tokens: readonly number[]): Promise<Float32Array> {
  const batch = new Batch(backend.facts.batchTokens);
  let logits = new Float32Array();
  for (let start = 0; start < tokens.length; start += backend.facts.batchTokens) {
    batch.clear();
    const chunk = tokens.slice(start, start + backend.facts.batchTokens);
    const first = backend.storedTokens(lane);
    for (const [index, token] of chunk.entries()) batch.push(lane, first + index, token, index === chunk.length - 1);
    expect(await backend.decode(batch)).toBe("done");
    logits = backend.logitsOf(chunk.length - 1).slice();
  }
  return logits;
}

function pagesOf(rows: LaneRows, lane: number, tokens: number): LanePiece[] {
  const pages: LanePiece[] = [];
  for (let from = 0; from < tokens; from += 64) {
    const stride = Math.min(64, tokens - from);
    const bytes = new Uint8Array(stride * rows.layout.bytesPerToken);
    rows.read(lane, from, stride, bytes);
    pages.push({ bytes, stride, count: stride });
  }
  return pages;
}

/** Bytes a token, from fixtures/README.md; gemma3 with all cells of its windowed layers. */
const pageable: ReadonlyArray<readonly [TinyModelName, number]> = [
  ["tiny-qwen3", 2048],
  ["tiny-gemma3", 1536],
  ["tiny-deepseek2", 2304],
];

describe.each(pageable)("rows of %s", (model, bytesPerToken) => {
  test("a lane made of pages goes on bit for bit like the one they came from, beside neighbours", async () => {
    const { backend, rows } = await openRows(model);
    expect(rows.layout.bytesPerToken).toBe(bytesPerToken);
    await feed(backend, 0, promptOf(1, 500));
    await feed(backend, 2, promptOf(2, 60));
    rows.write(1, pagesOf(rows, 0, 500));
    expect(backend.storedTokens(1)).toBe(500);
    for (const token of [5, 77, 130]) {
      const expected = await feed(backend, 0, [token]);
      expect(await feed(backend, 1, [token])).toEqual(expected);
    }
    await backend.close();
  });

  test("a part of a page, and a lane that was cut and refilled, give their own prefix and nothing of the old one", async () => {
    const { backend, rows } = await openRows(model);
    await feed(backend, 0, promptOf(1, 500));
    const pages = pagesOf(rows, 0, 320);
    backend.truncate(0, 300);
    await feed(backend, 0, promptOf(9, 120));
    const refilled = pagesOf(rows, 0, 420);
    rows.write(1, refilled);
    expect(await feed(backend, 1, [7])).toEqual(await feed(backend, 0, [7]));
    const cut = pages.slice(0, 5).map((page, index) => (index === 4 ? { ...page, count: 44 } : page));
    rows.write(2, cut);
    backend.truncate(0, 300);
    expect(await feed(backend, 2, [11])).toEqual(await feed(backend, 0, [11]));
    await backend.close();
  });

  test("a head is copied from lane to lane without leaving the device", async () => {
    const { backend, rows } = await openRows(model);
    await feed(backend, 0, promptOf(1, 500));
    rows.write(1, [{ lane: 0, count: 333 }]);
    const copied = await feed(backend, 1, [42]);
    backend.truncate(0, 333);
    expect(copied).toEqual(await feed(backend, 0, [42]));
    await backend.close();
  });

  test("a restored lane can be cut anywhere", async () => {
    const { backend, rows } = await openRows(model);
    await feed(backend, 0, promptOf(1, 500));
    rows.write(1, pagesOf(rows, 0, 500));
    for (const length of [450, 130, 20]) {
      expect(backend.canResume(1, length)).toBe(true);
      backend.truncate(0, length);
      backend.truncate(1, length);
      expect(await feed(backend, 1, [3])).toEqual(await feed(backend, 0, [3]));
    }
    await backend.close();
  });

  test("misuse is refused before the library sees it", async () => {
    const { backend, rows } = await openRows(model);
    await feed(backend, 0, promptOf(1, 100));
    expect(() => rows.read(0, 50, 51, new Uint8Array(51 * bytesPerToken))).toThrow("holds 100 tokens");
    expect(() => rows.read(0, 0, 10, new Uint8Array(7))).toThrow("10 tokens need");
    expect(() => rows.write(0, pagesOf(rows, 0, 64))).toThrow("not empty");
    await backend.close();
  });
});

test("memory with recurrent layers is never cut into pages", async () => {
  const { backend, opened } = await open("tiny-qwen35");
  expect(opened).toEqual({ refusal: "recurrent layers can only go on where they stopped" });
  expect(backend.storedTokens(0)).toBe(0);
  await backend.close();
});
