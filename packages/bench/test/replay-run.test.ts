import { ManualClock } from "@kvasir/kit";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { CompletionRecord } from "../src/completion-client.ts";
import { fitPrefillCost, physicalLimit, prefillSecondsOf, stepSeconds } from "../src/replay/physical-limit.ts";
import { describeLimit, replayComparisons, replayTable } from "../src/replay/replay-report.ts";
import { pauseFloorSeconds, type ReplayRow, type ReplayWorld, replay } from "../src/replay/replay-run.ts";
import { summarizeReplay } from "../src/replay/replay-summary.ts";
import type { PlannedSession } from "../src/replay/workload.ts";

function record(part: Partial<CompletionRecord>): CompletionRecord {
  return {
    status: 200,
    error: null,
    aborted: false,
    dispatchedAtMs: 0,
    outputAtMs: [],
    endMs: 0,
    promptTokens: 0,
    cachedTokens: 0,
    outputTokens: 0,
    timings: null,
    ...part,
  };
}

/** Time that moves only when everybody waits: sleeps end in order, each request takes one second. */
function steppedWorld(onSend: (atMs: number) => void): ReplayWorld & { drive: (run: Promise<unknown>) => Promise<void> } {
  const clock = new ManualClock();
  const sleep = (seconds: number) => new Promise<void>((resolve) => void clock.startTimer(seconds * 1000, resolve));
  return {
    clock,
    sleep,
    async send({ promptTokens }) {
      const dispatchedAtMs = clock.monotonicMs();
      onSend(dispatchedAtMs);
      await sleep(1);
      return record({ dispatchedAtMs, outputAtMs: [1000], endMs: 1000, promptTokens: promptTokens.length, outputTokens: 1 });
    },
    async drive(run) {
      const state = { isOver: false };
      const end = run.finally(() => {
        state.isOver = true;
      });
      while (!state.isOver) {
        await new Promise((resolve) => setImmediate(resolve));
        if (!state.isOver) clock.advance(250);
      }
      await end;
    },
  };
}

const session = (id: string, pauses: readonly number[]): PlannedSession => ({
  id,
  requests: pauses.map((pauseSeconds, turn) => ({ turn, promptTokens: [1, 2, turn], maxTokens: 1, pauseSeconds })),
});

describe("closed loop", () => {
  test("users-start-one-after-the-other-and-take-the-next-session-when-done", async () => {
    const sentAtMs: number[] = [];
    const world = steppedWorld((atMs) => sentAtMs.push(atMs));
    const run = replay([session("a", [0, 2]), session("b", [0]), session("c", [0])], { users: 2, rampSeconds: 1.5 }, world);
    await world.drive(run);
    const { rows, makespanSeconds } = await run;
    // user 0: a at 0 s, pause of 2 s after its end, a again at 3 s; user 1: b at 1.5 s, then c at 2.5 s
    expect(rows.map(({ session: index, turn, atSeconds }) => [index, turn, atSeconds])).toEqual([
      [0, 0, 0],
      [1, 0, 1.5],
      [2, 0, 2.5],
      [0, 1, 3],
    ]);
    expect(makespanSeconds).toBe(4);
    expect(sentAtMs).toHaveLength(4);
  });

  test("pauses-and-ramp-bound-the-makespan-from-below", () => {
    const sessions = [session("a", [0, 2, 3]), session("b", [0, 1])];
    expect(pauseFloorSeconds(sessions, { users: 2, rampSeconds: 4 })).toBe(5);
    expect(pauseFloorSeconds(sessions, { users: 1, rampSeconds: 4 })).toBe(0);
  });
});

describe("summary", () => {
  const row = (turn: number, part: Partial<CompletionRecord>): ReplayRow => ({
    session: 0,
    turn,
    atSeconds: 0,
    record: record(part),
  });
  const served = [
    row(0, { promptTokens: 100, cachedTokens: 0, outputTokens: 5, outputAtMs: [900, 910, 990] }),
    row(1, { promptTokens: 120, cachedTokens: 90, outputTokens: 4, outputAtMs: [50] }),
  ];

  test("adds-up-computed-tokens-and-keeps-first-turns-apart", () => {
    const summary = summarizeReplay({ rows: served, makespanSeconds: 7 }, 220, 125);
    expect(summary).toMatchObject({ requests: 2, failed: 0, computedTokens: 130, outputTokens: 9, longestGapMs: 80 });
    expect(summary.overComputation).toBeCloseTo(1.04);
    expect(summary.firstTurnTtftMs).toEqual({ n: 1, p50: 900, p95: 900, max: 900 });
    expect(summary.laterTurnTtftMs.p95).toBe(50);
  });

  test("failures-are-counted-and-unknown-cache-hits-stay-unknown", () => {
    const failed = row(2, { status: 500, error: "HTTP 500: no" });
    expect(summarizeReplay({ rows: [...served, failed], makespanSeconds: 7 }, 220, 125)).toMatchObject({
      failed: 1,
      firstErrors: ["HTTP 500: no"],
    });
    const silent = row(2, { promptTokens: 10, cachedTokens: null });
    expect(summarizeReplay({ rows: [...served, silent], makespanSeconds: 7 }, 220, 125)).toMatchObject({
      computedTokens: null,
      overComputation: null,
      hit: null,
    });
  });

  test("becomes-one-row-a-server-and-budget-and-comparisons-in-pairs", () => {
    const summary = summarizeReplay({ rows: served, makespanSeconds: 7 }, 220, 125);
    const results = ["kvasir", "peer"].flatMap((server) =>
      [0, 1].map((round) => ({
        hostCacheMib: 256,
        server,
        round,
        summary: { ...summary, makespanSeconds: server === "peer" ? 14 : 7 + round },
        limit: null,
        requests: [],
      })),
    );
    const table = replayTable(results);
    expect(table.rows.map((cells) => [cells[0], cells[1], cells[5], cells[6]])).toEqual([
      ["kvasir, 256 MiB", "2", "7.50 (7.00–8.00)", "unknown"],
      ["peer, 256 MiB", "2", "14.0 (14.0–14.0)", "unknown"],
    ]);
    expect(replayComparisons(results, "kvasir")[0]).toMatchObject({
      figure: "Replay makespan with 256 MiB",
      peer: "peer",
      ours: [7, 8],
      theirs: [14, 14],
    });
    expect(describeLimit(results)).toMatch(/^No calibration/);
  });
});

describe("physical limit", () => {
  test("fit-finds-the-cost-that-made-the-points", () => {
    const positive = fc.double({ min: 0.01, max: 100, noNaN: true });
    fc.assert(
      fc.property(positive, positive, (linear, quadratic) => {
        const seconds = (tokens: number) => linear * 1e-3 * tokens + quadratic * 1e-7 * tokens ** 2;
        const cost = fitPrefillCost([512, 2048, 6144].map((tokens) => ({ tokens, seconds: seconds(tokens) })));
        expect(cost.linear / (linear * 1e-3)).toBeCloseTo(1, 4);
        expect(cost.quadratic / (quadratic * 1e-7)).toBeCloseTo(1, 4);
      }),
    );
  });

  test("tokens-of-a-whole-prompt-add-up-to-the-cost-of-the-prompt", () => {
    const cost = { linear: 2e-3, quadratic: 3e-7 };
    expect(
      prefillSecondsOf(
        Array.from({ length: 1000 }, () => 1),
        cost,
      ),
    ).toBeCloseTo(2e-3 * 1000 + 3e-7 * 1000 ** 2, 9);
  });

  const points = [
    { batch: 1, depth: 0, stepSeconds: 0.01 },
    { batch: 1, depth: 1000, stepSeconds: 0.02 },
    { batch: 4, depth: 0, stepSeconds: 0.022 },
    { batch: 4, depth: 1000, stepSeconds: 0.062 },
  ];

  test("step-time-is-linear-between-calibrated-batches-and-depths", () => {
    expect(stepSeconds(points, 1, 500)).toBeCloseTo(0.015);
    expect(stepSeconds(points, 4, 0)).toBeCloseTo(0.022);
    expect(stepSeconds(points, 2, 0)).toBeCloseTo(0.014);
    expect(stepSeconds(points, 2.5, 500)).toBeCloseTo((0.015 + 0.042) / 2);
    expect(stepSeconds(points, 8, 0)).toBeCloseTo(0.044);
    expect(stepSeconds(points.slice(0, 1), 1, 700)).toBeCloseTo(0.01);
  });

  test("decode-costs-less-when-streams-ran-together", () => {
    const stream = (dispatchedAtMs: number): ReplayRow => ({
      session: 0,
      turn: 0,
      atSeconds: 0,
      record: record({ dispatchedAtMs, outputAtMs: [0, 500, 1000], outputTokens: 11, promptTokens: 0 }),
    });
    const apart = physicalLimit([], [stream(0), stream(5000)], { linear: 0, quadratic: 0 }, points);
    expect(apart.decodeSeconds).toBeCloseTo(20 * 0.01);
    expect(apart.meanDecodeBatch).toBeCloseTo(1);
    const together = physicalLimit([], [stream(0), stream(0)], { linear: 0, quadratic: 0 }, points);
    expect(together.meanDecodeBatch).toBeCloseTo(2);
    expect(together.decodeSeconds).toBeCloseTo((20 * 0.014) / 2);
  });
});
