import fc from "fast-check";
import { expect, test } from "vitest";
import { commonPrefix, LaneTable } from "../src/lane-table.ts";

const tokens = (...ids: number[]): Int32Array => Int32Array.from(ids);
const run = (from: number, count: number): Int32Array => Int32Array.from({ length: count }, (_, i) => from + i);

function withSessions(laneCount: number, ...sessions: Int32Array[]): LaneTable {
  const table = new LaneTable(laneCount, 100);
  sessions.forEach((session, lane) => {
    table.take(lane, 0);
    table.append(lane, session);
    table.release(lane);
  });
  return table;
}

test("a session comes back to its own lane", () => {
  const table = withSessions(3, run(0, 20), run(500, 20), run(900, 20));
  expect(table.choose(run(500, 30))).toEqual({ lane: 1, sharedTokens: 20, heldTokens: 20 });
});

test("a short common head does not cost an idle session while a lane is empty", () => {
  const table = withSessions(2, run(0, 20));
  expect(table.choose(tokens(0, 1, 2, 77, 78))).toEqual({ lane: 1, sharedTokens: 0, heldTokens: 0 });
});

test("without an empty lane the session idle for longest gives way", () => {
  const table = withSessions(2, run(0, 20), run(500, 20));
  table.take(0, 20);
  table.release(0);
  expect(table.choose(run(2000, 5))?.lane).toBe(1);
});

test("running lanes are never chosen", () => {
  const table = withSessions(2, run(0, 20), run(500, 20));
  table.take(0, 20);
  expect(table.choose(run(0, 25))?.lane).toBe(1);
  table.take(1, 0);
  expect(table.choose(run(0, 25))).toBeNull();
  expect(table.hasFreeLane).toBe(false);
  expect(table.longestShared(run(0, 25))).toBe(20);
});

test("misuse is a broken invariant, not a wrong lane", () => {
  const table = withSessions(1, run(0, 20));
  expect(() => table.take(0, 21)).toThrow("holds 20 tokens, cannot keep 21");
  table.take(0, 20);
  expect(() => table.take(0, 5)).toThrow("already running");
  expect(() => table.append(0, run(0, 81))).toThrow("overflows 100");
  table.release(0);
  expect(() => table.release(0)).toThrow("not running");
  expect(() => table.length(7)).toThrow("does not exist");
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
