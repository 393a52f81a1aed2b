import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, expect, test } from "vitest";
import { JsonlWriter, type JsonlWriterOptions } from "../src/index.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "kvasir-jsonl-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const fail = (error: Error): void => expect.fail(error.message);
const openWriter = (options: Partial<JsonlWriterOptions> = {}): Promise<JsonlWriter> =>
  JsonlWriter.open({ path: join(folder, "log.jsonl"), maxBytes: 0, onError: fail, ...options });

const recordsIn = (name: string): unknown[] =>
  readFileSync(join(folder, name), "utf8")
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as unknown);

test("records are in the file, in order, when close returns, and a second writer appends", async () => {
  const first = await openWriter();
  first.append({ n: 1 });
  first.append({ n: 2, text: "zwei\nZeilen" });
  await first.close();
  const second = await openWriter();
  second.append({ n: 3 });
  await second.close();
  expect(recordsIn("log.jsonl")).toEqual([{ n: 1 }, { n: 2, text: "zwei\nZeilen" }, { n: 3 }]);
});

const rotation = (name: string): number => Number(/\.(\d+)$/.exec(name)?.[1] ?? 0);

test("rotation splits no line, loses no line and keeps the asked number of files", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(60), { minLength: 1, maxLength: 40 }), fc.array(fc.nat(3)), async (lengths, pauses) => {
      const writer = await openWriter({ maxBytes: 100, keptFiles: 1000 });
      for (const [n, length] of lengths.entries()) {
        writer.append({ n, text: "x".repeat(length) });
        if (pauses[n] === 0) await writer.flush();
      }
      await writer.close();
      const names = readdirSync(folder).sort((x, y) => rotation(y) - rotation(x));
      for (const name of names) expect(statSync(join(folder, name)).size).toBeLessThanOrEqual(100);
      const numbers = names.flatMap((name) => recordsIn(name).map((record) => (record as { n: number }).n));
      expect(numbers).toEqual(lengths.map((_, n) => n));
      for (const name of names) rmSync(join(folder, name));
    }),
    { numRuns: 10 },
  );
});

test("only the asked number of rotated files stays", async () => {
  const writer = await openWriter({ maxBytes: 10, keptFiles: 2 });
  for (let n = 0; n < 9; n++) writer.append({ n });
  await writer.close();
  expect(readdirSync(folder).sort()).toEqual(["log.jsonl", "log.jsonl.1", "log.jsonl.2"]);
  expect(recordsIn("log.jsonl")).toEqual([{ n: 8 }]);
});

test("memory is bounded: what does not fit is dropped and counted", async () => {
  const writer = await openWriter({ maxPendingBytes: 100 });
  for (let n = 0; n < 50; n++) writer.append({ n, text: "x".repeat(20) });
  expect(writer.droppedRecords).toBeGreaterThan(40);
  await writer.close();
  expect(recordsIn("log.jsonl").length + writer.droppedRecords).toBe(50);
});

test("a row of failures surfaces once, and append never throws", async () => {
  const errors: Error[] = [];
  const writer = await JsonlWriter.open({ path: "/dev/full", maxBytes: 0, onError: (error) => errors.push(error) });
  for (let n = 0; n < 5; n++) {
    writer.append({ n });
    await writer.flush();
  }
  await writer.close();
  expect(errors.map((error) => "code" in error && error.code)).toEqual(["ENOSPC"]);
  expect(writer.droppedRecords).toBe(5);
});

test("a folder that cannot be made stops the opening", async () => {
  await expect(openWriter({ path: "/dev/null/log.jsonl" })).rejects.toThrow(/EEXIST|ENOTDIR/);
});

test("a record after close is dropped", async () => {
  const writer = await openWriter();
  await writer.close();
  writer.append({ n: 1 });
  await writer.close();
  expect([writer.droppedRecords, recordsIn("log.jsonl")]).toEqual([1, []]);
});
