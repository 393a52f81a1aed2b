import { ManualClock } from "@kvasir/kit";
import { describe, expect, test } from "vitest";
import { Batch, ScriptedBackend, type ScriptedBackendOptions } from "../src/index.ts";

type Row = readonly [lane: number, position: number, token: number, wantsLogits?: boolean];

function batchWith(...rows: Row[]): Batch {
  const batch = new Batch(Math.max(rows.length, 1));
  for (const [lane, position, token, wantsLogits = false] of rows) batch.push(lane, position, token, wantsLogits);
  return batch;
}

function mostLikely(logits: Float32Array): number {
  return logits.indexOf(Math.max(...logits));
}

const prompt: Row[] = [10, 11, 12, 13].map((token, position) => [0, position, token, position === 3]);

describe("a scripted backend", () => {
  test("gives the same logits for the same tokens and seed, and other ones otherwise", async () => {
    const row = async (options: ScriptedBackendOptions, ...rows: Row[]): Promise<number[]> => {
      const backend = new ScriptedBackend(options);
      await backend.decode(batchWith(...rows));
      return [...backend.logitsOf(rows.length - 1)];
    };
    expect(await row({}, ...prompt)).toEqual(await row({}, ...prompt));
    expect(await row({ seed: 5 }, ...prompt)).not.toEqual(await row({}, ...prompt));
    const [, ...rest] = prompt;
    expect(await row({}, [0, 0, 99], ...rest)).not.toEqual(await row({}, ...prompt));
  });

  test("makes the named token the most likely, and end tokens otherwise the least", async () => {
    const backend = new ScriptedBackend({ nextToken: (tokens) => (tokens.length === 4 ? 256 : null) });
    await backend.decode(batchWith(...prompt));
    expect(mostLikely(backend.logitsOf(3))).toBe(256);
    await backend.decode(batchWith([0, 4, 1, true]));
    const logits = backend.logitsOf(0);
    expect(logits[256]).toBe(Math.min(...logits));
  });

  test("keeps rows of one lane together", () => {
    const backend = new ScriptedBackend();
    expect(() => backend.decode(batchWith([0, 0, 1], [1, 0, 1], [0, 1, 1]))).toThrow(
      "rows of lane 0 are not contiguous (row 2)",
    );
    expect(backend.storedTokens(0)).toBe(0);
  });

  test("runs one decode at a time and no other change meanwhile", async () => {
    const backend = new ScriptedBackend({ asyncFromRows: 0 });
    const decoding = backend.decode(batchWith(...prompt));
    expect(() => backend.decode(batchWith([1, 0, 1]))).toThrow("another decode runs");
    expect(() => backend.truncate(0, 0)).toThrow("while a decode runs");
    expect(() => backend.logitsOf(3)).toThrow("while a decode runs");
    await expect(backend.close()).rejects.toThrow("while a decode runs");
    expect(await decoding).toBe("done");
    await backend.close();
    expect(() => backend.decode(batchWith([0, 4, 1]))).toThrow("closed backend");
  });

  test("spoils old logits at the next decode", async () => {
    const backend = new ScriptedBackend();
    await backend.decode(batchWith(...prompt));
    const old = backend.logitsOf(3);
    await backend.decode(batchWith([0, 4, 1]));
    expect(old.every(Number.isNaN)).toBe(true);
    expect(() => backend.logitsOf(3)).toThrow("did not ask");
  });

  test("stops between two microbatches when it is aborted, and keeps whole ones", async () => {
    const backend = new ScriptedBackend({ asyncFromRows: 0, microbatchRows: 4 });
    const rows = Array.from({ length: 20 }, (_, position): Row => [0, position, position]);
    const decoding = backend.decode(batchWith(...rows));
    setImmediate(() => setImmediate(() => backend.abort()));
    expect(await decoding).toBe("aborted");
    expect(backend.storedTokens(0)).toBeGreaterThan(0);
    expect(backend.storedTokens(0)).toBeLessThan(20);
    expect(backend.storedTokens(0) % 4).toBe(0);
  });

  test("fails when the script says so: refused and no-room store nothing, a lost device half", () => {
    const faults = ["refused", "no-room", "device-lost", null] as const;
    const backend = new ScriptedBackend({ faultAt: (call) => faults[call - 1] ?? null });
    expect(() => backend.decode(batchWith(...prompt))).toThrow(expect.objectContaining({ code: "decode_failed" }));
    expect(backend.storedTokens(0)).toBe(0);
    expect(backend.decode(batchWith(...prompt))).toBe("no-room");
    expect(backend.storedTokens(0)).toBe(0);
    expect(() => backend.decode(batchWith(...prompt))).toThrow(expect.objectContaining({ code: "decode_failed" }));
    expect(backend.storedTokens(0)).toBe(2);
    backend.truncate(0, 0);
    expect(backend.decode(batchWith(...prompt))).toBe("done");
    expect(backend.calls).toBe(4);
  });

  test("takes the time that its cost model says, on the caller's clock", async () => {
    const clock = new ManualClock();
    const backend = new ScriptedBackend({ cost: { clock, perCallMs: 10, perRowMs: 2, perDepthMs: 0.5 }, microbatchRows: 3 });
    await backend.decode(batchWith(...prompt));
    expect(clock.monotonicMs()).toBe(10 + 4 * 2 + (0 + 1 + 2 + 3) * 0.5);
  });

  test("can be cut anywhere, or with recurrent memory only at its ends", async () => {
    const anywhere = new ScriptedBackend();
    const recurrent = new ScriptedBackend({ resume: "frontier" });
    for (const backend of [anywhere, recurrent]) await backend.decode(batchWith(...prompt));
    const lengths = [0, 1, 3, 4, 5];
    expect(lengths.filter((length) => anywhere.canResume(0, length))).toEqual([0, 1, 3, 4]);
    expect(lengths.filter((length) => recurrent.canResume(0, length))).toEqual([0, 4]);
    expect(() => recurrent.truncate(0, 3)).toThrow("lane 0 with 4 tokens cannot resume at 3");
  });

  test("takes a vocabulary of its own", () => {
    const pieces = ["he", "llo", ""].map((text) => new TextEncoder().encode(text));
    const backend = new ScriptedBackend({ pieces, endTokens: [2] });
    expect(backend.facts).toMatchObject({ vocabSize: 3, endTokens: [2] });
    expect(new TextDecoder().decode(backend.pieceOf(1))).toBe("llo");
    expect(() => backend.pieceOf(3)).toThrow("outside the vocabulary of 3");
  });
});
