import { type Backend, Batch } from "@kvasir/engine";
import { CodedError } from "@kvasir/kit";
import { describe, expect, test } from "vitest";
import { type LaneStateBackend, openLlamaBackend, readLaneStateLayout } from "../src/index.ts";
import { bytesPerToken } from "../src/lane-state-layout.ts";
import { type TinyModelName, tinyModelPath } from "../../../fixtures/tiny-models.ts";

const open = (model: TinyModelName, laneTokens = 512) =>
  openLlamaBackend({ modelPath: tinyModelPath(model), laneCount: 3, laneTokens, batchTokens: 128, threads: 1 });

const promptOf = (seed: number, length: number) => Array.from({ length }, (_, index) => (seed * 37 + index * index * 7) % 256);

/** Appends tokens and returns the logits of the last. */
async function feed(backend: Backend, lane: number, tokens: readonly number[]): Promise<Float32Array> {
  const batch = new Batch(backend.facts.batchTokens);
  let logits: Float32Array | undefined;
  for (let start = 0; start < tokens.length; start += backend.facts.batchTokens) {
    batch.clear();
    const chunk = tokens.slice(start, start + backend.facts.batchTokens);
    const first = backend.storedTokens(lane);
    for (const [index, token] of chunk.entries()) batch.push(lane, first + index, token, index === chunk.length - 1);
    expect(await backend.decode(batch)).toBe("done");
    logits = backend.logitsOf(chunk.length - 1).slice();
  }
  return logits ?? new Float32Array();
}

/** KV bytes a token and recurrent bytes a lane, from fixtures/models/README.md (gemma3 with all cells of windowed layers). */
const sizes: ReadonlyArray<readonly [TinyModelName, kvBytes: number, recurrentBytes: number, caches: number]> = [
  ["tiny-qwen3", 2048, 0, 1],
  ["tiny-gemma3", 1536, 0, 2],
  ["tiny-deepseek2", 2304, 0, 1],
  ["tiny-qwen35", 512, 215_040, 1],
];

describe.each(sizes)("lane states of %s", (model, kvBytes, recurrentBytes, caches) => {
  test("an imported lane goes on exactly like the one it came from, beside neighbours", async () => {
    const backend = await open(model);
    const prompt = promptOf(1, 200);
    await feed(backend, 0, prompt);
    await feed(backend, 2, promptOf(2, 60));
    const state = await backend.exportLane(0);
    expect(state.tokens).toBe(200);
    expect(state.bytes).toHaveLength(backend.laneStateBytes(0));
    await feed(backend, 1, promptOf(3, 90)); // replaced by the import
    await backend.importLane(1, state.bytes, 200);
    expect([0, 1, 2].map((lane) => backend.storedTokens(lane))).toEqual([200, 200, 60]);
    for (const token of [5, 77, 130]) {
      const expected = await feed(backend, 0, [token]);
      expect(await feed(backend, 1, [token])).toEqual(expected); // same shapes, same cells: the same bits
    }
    state.release();
    expect(state.bytes).toHaveLength(0);
    await backend.close();
  });

  test("the layout is read to the last byte", async () => {
    const backend = await open(model);
    await feed(backend, 1, promptOf(4, 100));
    const { bytes } = await backend.exportLane(1);
    const layout = readLaneStateLayout(bytes);
    expect(layout?.caches).toHaveLength(caches);
    expect(layout && bytesPerToken(layout)).toBe(kvBytes);
    expect(backend.facts.kvBytesPerToken).toBe(kvBytes);
    expect(backend.facts.kvBytes).toBe(3 * (512 * kvBytes + recurrentBytes));
    expect(layout?.recurrentBytes).toBe(recurrentBytes);
    for (const cache of layout?.caches ?? []) expect([...cache.positions]).toEqual([...Array(100).keys()]);
    expect(readLaneStateLayout(bytes.subarray(0, bytes.length - 1))).toBeNull();
    expect(readLaneStateLayout(Buffer.concat([bytes, Buffer.alloc(1)]))).toBeNull();
    await backend.close();
  });

  test("a copied lane stands on its own", async () => {
    const backend = await open(model);
    const prompt = promptOf(5, 120);
    await feed(backend, 0, prompt);
    await backend.copyLane(0, 2);
    const first = await feed(backend, 0, [9]); // changes the source before the copy is used
    expect(await feed(backend, 2, [9])).toEqual(first);
    backend.truncate(0, 0);
    await feed(backend, 0, promptOf(6, 50));
    expect(backend.storedTokens(2)).toBe(121);
    await feed(backend, 1, [...prompt, 9]);
    const alone = await feed(backend, 1, [33]);
    expect(differenceShare(await feed(backend, 2, [33]), alone)).toBeLessThan(0.01);
    await backend.close();
  });

  test("a state that does not fit leaves an empty lane", async () => {
    const backend = await open(model);
    await feed(backend, 0, promptOf(7, 40));
    const { bytes } = await backend.exportLane(0);
    const damaged: ReadonlyArray<readonly [Uint8Array, number]> = [
      [bytes, 39],
      [bytes.subarray(0, bytes.length >> 1), 40],
      [Buffer.from("no state at all, but long enough to look at"), 1],
    ];
    for (const [state, tokens] of damaged) {
      await feed(backend, 1, promptOf(8, 10));
      await expect(backend.importLane(1, state, tokens)).rejects.toBeInstanceOf(CodedError);
      expect(backend.storedTokens(1)).toBe(0);
      expect(backend.storedTokens(0)).toBe(40);
      backend.truncate(1, 0);
    }
    await backend.close();
  });
});

test("a windowed model says where an imported lane can resume", async () => {
  const backend = await open("tiny-gemma3");
  await feed(backend, 0, promptOf(1, 300));
  expect(backend.canResume(0, 10)).toBe(true); // all cells of the window's layers are kept
  const { bytes } = await backend.exportLane(0);
  await backend.importLane(1, bytes, 300);
  // what the window (128) of position 299 does not see is gone
  expect([300, 299, 200, 10, 0].map((length) => backend.canResume(1, length))).toEqual([true, false, false, false, true]);
  expect(() => backend.truncate(1, 200)).toThrow(/cannot be cut/);
  await backend.close();
});

test("a long state is copied beside the event loop", async () => {
  const backend: Backend & LaneStateBackend = await open("tiny-qwen3", 2560);
  await feed(backend, 0, promptOf(1, 2300));
  let turns = 0;
  const exporting = backend.exportLane(0);
  setImmediate(() => turns++);
  expect(() => backend.truncate(1, 0)).toThrow(/while another call runs/);
  const state = await exporting;
  expect(state.bytes.byteLength).toBeGreaterThan(4 * 1024 * 1024);
  await backend.importLane(2, state.bytes, 2300);
  expect(turns).toBe(1);
  expect(await feed(backend, 2, [3])).toEqual(await feed(backend, 0, [3]));
  await backend.close();
});

function differenceShare(actual: Float32Array, expected: Float32Array): number {
  const spread = Math.max(...expected) - Math.min(...expected);
  return Math.max(...expected.map((logit, token) => Math.abs(logit - (actual[token] ?? Number.NaN)))) / spread;
}
