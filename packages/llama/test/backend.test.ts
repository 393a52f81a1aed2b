import { Batch } from "@kvasir/engine";
import { describe, expect, test } from "vitest";
import { type LlamaBackendOptions, type LogLine, openLlamaBackend } from "../src/index.ts";
import { tinyModelPath } from "../../../fixtures/tiny-models.ts";

const open = (options: Partial<LlamaBackendOptions> = {}) =>
  openLlamaBackend({
    modelPath: tinyModelPath("tiny-qwen3"),
    laneCount: 3,
    laneTokens: 600,
    batchTokens: 512,
    threads: 1,
    ...options,
  });

function batchOf(lane: number, firstPosition: number, rows: number, seed = 1): Batch {
  const batch = new Batch(512);
  for (let row = 0; row < rows; row++) batch.push(lane, firstPosition + row, (seed + row * row * 5) % 256, row === rows - 1);
  return batch;
}

test("progress rises to the end and the log can be read while it starts", async () => {
  const fractions: number[] = [];
  const lines: LogLine[] = [];
  const backend = await open({ onProgress: (fraction) => fractions.push(fraction), onLog: (line) => lines.push(line) });
  expect(fractions.at(-1)).toBe(1);
  expect(fractions).toEqual([...fractions].sort((one, other) => one - other));
  expect(lines.some(({ level, text }) => level === "info" && text.includes("n_ctx_seq"))).toBe(true);
  await backend.close();
});

test("facts say what was allocated", async () => {
  const backend = await open({ outputRows: 7 });
  expect(backend.facts).toMatchObject({
    laneCount: 3,
    laneTokens: 600,
    batchTokens: 512,
    outputRows: 7,
    vocabSize: 278,
    threads: 1,
  });
  expect(backend.facts.kvBytes).toBe(3 * 768 * 2048); // 600 tokens are 3 × 256 cells
  expect(backend.facts.endTokens).toEqual([263, 265, 269, 270, 271]);
  expect(backend.facts.description).toMatch(/^qwen3 .*, CPU \w+$/);
  await backend.close();
});

test("short decodes return at once, long ones run beside the event loop, one at a time", async () => {
  const backend = await open({ synchronousRows: 8 });
  expect(backend.decode(batchOf(0, 0, 8))).toBe("done");
  let turns = 0;
  const running = backend.decode(batchOf(0, 8, 400));
  setImmediate(() => turns++);
  expect(running).toBeInstanceOf(Promise);
  for (const call of [() => backend.decode(batchOf(1, 0, 1)), () => backend.truncate(0, 0), () => backend.logitsOf(0)]) {
    expect(call).toThrow(/while another call runs/);
  }
  expect(backend.storedTokens(0)).toBe(8);
  expect(backend.canResume(0, 4)).toBe(true);
  expect(await running).toBe("done");
  expect(turns).toBe(1);
  expect(backend.storedTokens(0)).toBe(408);
  await backend.close();
});

test("an abort ends a decode inside its chunk, and the next one is whole", async () => {
  const backend = await open({ synchronousRows: 0 });
  const running = backend.decode(batchOf(1, 0, 512));
  backend.abort();
  expect(await running).toBe("aborted");
  expect(backend.storedTokens(1)).toBe(0);
  expect(() => backend.logitsOf(511)).toThrow(/no logits/);
  expect(await backend.decode(batchOf(1, 0, 512))).toBe("done");
  expect(backend.storedTokens(1)).toBe(512);
  await backend.close();
});

test("a recurrent lane keeps its tokens when a decode is aborted: the chunk runs to its end", async () => {
  const backend = await open({ modelPath: tinyModelPath("tiny-qwen35"), synchronousRows: 0 });
  expect(await backend.decode(batchOf(1, 0, 100))).toBe("done");
  const running = backend.decode(batchOf(1, 100, 200));
  backend.abort();
  expect(await running).toBe("done");
  expect(backend.storedTokens(1)).toBe(300);
  expect([0, 299, 300].map((length) => backend.canResume(1, length))).toEqual([true, false, true]);
  expect(() => backend.truncate(1, 150)).toThrow(/lane 1 cannot be cut from 300 to 150 tokens/);
  await backend.close();
});

test("closing ends the decode that runs, and nothing works afterwards", async () => {
  const backend = await open({ synchronousRows: 0 });
  const running = backend.decode(batchOf(0, 0, 512));
  await backend.close();
  expect(["aborted", "done"]).toContain(await running);
  expect(() => backend.decode(batchOf(0, 0, 1))).toThrow(/closed/);
});

test("one lane is a backend too", async () => {
  const backend = await open({ laneCount: 1 });
  await backend.decode(batchOf(0, 0, 300));
  backend.truncate(0, 120);
  expect(backend.storedTokens(0)).toBe(120);
  expect(await backend.decode(batchOf(0, 120, 20))).toBe("done");
  await backend.close();
});

test("quantized cells take less memory", async () => {
  const backend = await open({ keyType: "q8_0", valueType: "q8_0" });
  expect(backend.facts.kvBytesPerToken).toBe((2048 / 64) * 34); // 34 bytes for 32 values of 2
  expect(await backend.decode(batchOf(0, 0, 100))).toBe("done");
  await backend.close();
});

describe("a start that cannot work says why", () => {
  test("more KV than memory, with the lanes that would fit", async () => {
    const start = open({ laneTokens: 32_768, availableBytes: 2_661_856 + 3 * 1024 * 2048 });
    await expect(start).rejects.toMatchObject({
      code: "kv_memory_insufficient",
      message: expect.stringMatching(/3 lanes of 32,768 tokens need 192\.0 MiB .* 3 lanes of (1,024|768) tokens would fit/),
    });
  });

  test.each([
    [{ laneCount: 0 }, /laneCount is 0/],
    [{ laneCount: 257 }, /laneCount is 257/],
    [{ threads: 0 }, /threads is 0/],
    [{ batchTokens: 1.5 }, /batchTokens is 1.5/],
  ])("%j", async (options, message) => {
    await expect(open(options)).rejects.toMatchObject({
      code: "invalid_configuration",
      message: expect.stringMatching(message),
    });
  });

  test("cells that do not divide a head", async () => {
    const start = open({ modelPath: tinyModelPath("tiny-deepseek2"), keyType: "q8_0" });
    await expect(start).rejects.toMatchObject({
      code: "engine_start_failed",
      message: expect.stringMatching(/different K .* and V/),
    });
  });
});
