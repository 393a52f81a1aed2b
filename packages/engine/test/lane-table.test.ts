import fc from "fast-check";
import { expect, test } from "vitest";
import { commonPrefix, LaneTable } from "../src/lane-table.ts";

const run = (from: number, count: number): Int32Array => Int32Array.from({ length: count }, (_, i) => from + i);

function withSessions(laneCount: number, ...sessions: Int32Array[]): LaneTable {
  const table = new LaneTable(laneCount, 100);
  sessions.forEach((session, lane) => {
    table.take(lane, "", 0);
    table.append(lane, session);
    table.release(lane);
  });
  return table;
}

test("every lane tells what it shares, what it holds and when it was used", () => {
  const table = withSessions(3, run(0, 20), run(500, 20));
  table.take(1, "", 20);
  expect(table.views("", run(500, 30))).toEqual([
    { lane: 0, state: "idle", sharedTokens: 0, heldTokens: 20, lastUse: 1 },
    { lane: 1, state: "running", sharedTokens: 20, heldTokens: 20, lastUse: 2 },
    { lane: 2, state: "empty", sharedTokens: 0, heldTokens: 0, lastUse: 0 },
  ]);
});

test("another namespace shares nothing and cannot keep anything", () => {
  const table = withSessions(1, run(0, 20));
  expect(table.views("other", run(0, 20))[0]?.sharedTokens).toBe(0);
  expect(() => table.take(0, "other", 5)).toThrow("another namespace");
  table.take(0, "other", 0);
});

test("misuse is a broken invariant, not a wrong lane", () => {
  const table = withSessions(1, run(0, 20));
  expect(() => table.take(0, "", 21)).toThrow("holds 20 tokens, cannot keep 21");
  table.take(0, "", 20);
  expect(() => table.take(0, "", 5)).toThrow("already running");
  expect(() => table.append(0, run(0, 81))).toThrow("overflows 100");
  table.release(0);
  expect(() => table.release(0)).toThrow("not running");
  expect(() => table.length(7)).toThrow("does not exist");
  expect(table.hasFreeLane).toBe(true);
});

test("the common prefix is where two sequences first differ", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(3)), fc.array(fc.nat(3)), fc.array(fc.nat(3)), (head, left, right) => {
      const length = commonPrefix(Int32Array.from([...head, ...left]), Int32Array.from([...head, ...right]));
      expect(length).toBeGreaterThanOrEqual(head.length);
      expect([...head, ...left].slice(0, length)).toEqual([...head, ...right].slice(0, length));
      expect([...head, ...left][length] ?? -1).not.toBe([...head, ...right][length] ?? -2);
    }),
  );
});
