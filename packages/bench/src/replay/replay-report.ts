/** The tables of a replay benchmark. */

import { formatCount, median } from "@kvasir/kit";
import type { Comparison } from "../comparison.ts";
import { type Spread, spreadOf } from "../pair-ratios.ts";
import type { ServerTimings } from "../server-timings.ts";
import { formatFigure, formatSpread, type TextTable } from "../text-table.ts";
import type { PhysicalLimit } from "./physical-limit.ts";
import type { ReplaySummary } from "./replay-summary.ts";

export interface ReplayResult {
  readonly hostCacheMib: number | null;
  readonly server: string;
  readonly round: number;
  readonly summary: ReplaySummary;
  /** null without a calibration. */
  readonly limit: PhysicalLimit | null;
  /** Every request, for whoever wants to look closer. */
  readonly requests: readonly ReplayedRequest[];
}

export interface ReplayedRequest {
  readonly session: number;
  readonly turn: number;
  readonly atSeconds: number;
  readonly ttftMs: number | null;
  readonly endMs: number;
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
  readonly outputTokens: number | null;
  readonly timings: ServerTimings | null;
  readonly error: string | null;
}

/** One row for each server and budget: medians over the rounds with their range. */
export function replayTable(results: readonly ReplayResult[]): TextTable {
  return {
    columns: [
      "Server, host budget",
      "n",
      "Failed",
      "Computed ÷ unavoidable",
      "Hit",
      "Makespan, s",
      "÷ limit",
      "TTFT first p50, ms",
      "later p50",
      "later p95",
      "max",
    ],
    rows: groups(results).map((group) => {
      const spread = (figure: (result: ReplayResult) => number | null): Spread =>
        spreadOf(group.map(figure).filter((value) => value !== null));
      const first = group[0];
      const budget = first?.hostCacheMib === null ? "" : `, ${formatCount(first?.hostCacheMib ?? 0)} MiB`;
      return [
        `${first?.server}${budget}`,
        `${group.length}`,
        `${group.reduce((total, { summary }) => total + summary.failed, 0)}`,
        cell(spread(({ summary }) => summary.overComputation)),
        cell(spread(({ summary }) => summary.hit)),
        cell(spread(({ summary }) => summary.makespanSeconds)),
        cell(spread(({ summary, limit }) => (limit === null ? null : summary.makespanSeconds / limit.seconds))),
        cell(spread(({ summary }) => summary.firstTurnTtftMs.p50)),
        cell(spread(({ summary }) => summary.laterTurnTtftMs.p50)),
        cell(spread(({ summary }) => summary.laterTurnTtftMs.p95)),
        cell(spread(({ summary }) => Math.max(summary.firstTurnTtftMs.max, summary.laterTurnTtftMs.max))),
      ];
    }),
  };
}

/** Ours against each peer at the same host budget, round by round. */
export function replayComparisons(results: readonly ReplayResult[], ourName: string): Comparison[] {
  return groups(results)
    .filter(([first]) => first !== undefined && first.server !== ourName)
    .flatMap((theirs) => {
      const { server, hostCacheMib } = theirs[0] as ReplayResult;
      const ours = results.filter((result) => result.server === ourName && result.hostCacheMib === hostCacheMib);
      if (ours.length !== theirs.length) return [];
      const at = hostCacheMib === null ? "" : ` with ${formatCount(hostCacheMib)} MiB`;
      const compare = (figure: string, unit: string, value: (summary: ReplaySummary) => number): Comparison => ({
        figure: `${figure}${at}`,
        unit,
        clock: "wall",
        peer: server,
        ours: ours.map(({ summary }) => value(summary)),
        theirs: theirs.map(({ summary }) => value(summary)),
      });
      return [
        compare("Replay makespan", "s", (summary) => summary.makespanSeconds),
        compare("TTFT p95 of later turns", "ms", (summary) => summary.laterTurnTtftMs.p95),
        compare("Computed prompt tokens", "count", (summary) => summary.computedTokens ?? Number.NaN),
      ];
    });
}

/** How the limit came about, from the run of ours (or the only one). */
export function describeLimit(results: readonly ReplayResult[]): string {
  const limits = results.map(({ limit }) => limit).filter((limit) => limit !== null);
  if (limits.length === 0) return "No calibration: the physical limit was not computed.";
  const middle = (figure: (limit: PhysicalLimit) => number) => formatFigure(median(limits.map(figure)));
  return `Physical limit (median over ${limits.length} runs): ${middle((limit) => limit.seconds)} s = ${middle((limit) => limit.prefillSeconds)} s for the unavoidable prompt tokens at the solo speed of their depth + ${middle((limit) => limit.decodeSeconds)} s of decode at the batch sizes reached (mean ${middle((limit) => limit.meanDecodeBatch)}).`;
}

function groups(results: readonly ReplayResult[]): ReplayResult[][] {
  return [...Map.groupBy(results, ({ server, hostCacheMib }) => `${server} ${hostCacheMib}`).values()];
}

function cell(spread: Spread): string {
  if (spread.n === 0) return "unknown";
  return spread.n === 1 ? formatFigure(spread.median) : formatSpread(spread);
}
