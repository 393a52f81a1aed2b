/** Replays the same workload against fresh servers in turn: a cache from the run before would be a lie. */

import { measureInterleaved, warningsOf } from "../measurement.ts";
import { type ServerCommand, startServer } from "../server-process.ts";
import { formatFigure } from "../text-table.ts";
import type { Calibration } from "./calibration.ts";
import { physicalLimit } from "./physical-limit.ts";
import { unavoidableByDepth } from "./prefix-tree.ts";
import type { ReplayedRequest, ReplayResult } from "./replay-report.ts";
import { type ReplayOptions, type ReplayOutcome, type ReplayRow, realWorld, replay } from "./replay-run.ts";
import { type ReplaySummary, summarizeReplay } from "./replay-summary.ts";
import { type PlannedSession, promptTokensOf } from "./workload.ts";

export interface ReplayContender {
  readonly server: string;
  command(): Promise<ServerCommand>;
}

/** Everything about a workload that does not depend on who serves it. */
export interface MeasuredWorkload {
  readonly sessions: readonly PlannedSession[];
  readonly byDepth: readonly number[];
  readonly unavoidable: number;
  readonly promptTokens: number;
}

export function measureWorkload(sessions: readonly PlannedSession[]): MeasuredWorkload {
  const byDepth = unavoidableByDepth(sessions.flatMap((session) => session.requests.map((request) => request.promptTokens)));
  return {
    sessions,
    byDepth,
    unavoidable: byDepth.reduce((total, count) => total + count, 0),
    promptTokens: promptTokensOf(sessions),
  };
}

export function resultOf(
  workload: MeasuredWorkload,
  outcome: ReplayOutcome,
  calibration: Calibration | null,
): Pick<ReplayResult, "summary" | "limit" | "requests"> {
  return {
    summary: summarizeReplay(outcome, workload.promptTokens, workload.unavoidable),
    limit: calibration === null ? null : physicalLimit(workload.byDepth, outcome.rows, calibration.prefill, calibration.decode),
    requests: outcome.rows.map(requestOf),
  };
}

function requestOf({ session, turn, atSeconds, record }: ReplayRow): ReplayedRequest {
  const { endMs, promptTokens, cachedTokens, outputTokens, timings, error } = record;
  const ttftMs = record.outputAtMs[0] ?? null;
  return { session, turn, atSeconds, ttftMs, endMs, promptTokens, cachedTokens, outputTokens, timings, error };
}

/** All contenders at one host budget, `rounds` times in turn. */
export async function replayInTurn(
  contenders: readonly ReplayContender[],
  hostCacheMib: number,
  rounds: number,
  workload: MeasuredWorkload,
  options: ReplayOptions,
  calibration: Calibration | null,
  report: (line: string) => void,
): Promise<{ readonly results: readonly ReplayResult[]; readonly warnings: readonly string[] }> {
  const measurements = await measureInterleaved(
    contenders.map(({ server, command }) => ({
      name: server,
      pid: null,
      measure: async () =>
        resultOf(workload, await replayFresh(await command(), workload.sessions, options, report), calibration),
    })),
    rounds,
    ({ contender, round, value }) =>
      report(`${hostCacheMib} MiB · round ${round + 1} · ${contender}: ${describeSummary(value.summary)}`),
  );
  return {
    results: measurements.map(({ contender, round, value }) => ({ hostCacheMib, server: contender, round, ...value })),
    warnings: warningsOf(`${hostCacheMib} MiB`, measurements),
  };
}

async function replayFresh(
  command: ServerCommand,
  sessions: readonly PlannedSession[],
  options: ReplayOptions,
  report: (line: string) => void,
): Promise<ReplayOutcome> {
  const server = await startServer(command);
  try {
    const total = sessions.reduce((count, session) => count + session.requests.length, 0);
    let done = 0;
    return await replay(sessions, options, realWorld({ baseUrl: server.baseUrl, model: server.model }), () => {
      done++;
      if (done % 20 === 0) report(`  ${server.name}: ${done} of ${total} requests`);
    });
  } finally {
    await server.close();
  }
}

export function describeSummary(summary: ReplaySummary): string {
  const over = summary.overComputation === null ? "computed unknown" : `${formatFigure(summary.overComputation)} × unavoidable`;
  return `${formatFigure(summary.makespanSeconds)} s, ${over}, later TTFT p95 ${formatFigure(summary.laterTurnTtftMs.p95)} ms, ${summary.failed} failed`;
}
