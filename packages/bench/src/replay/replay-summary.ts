/** What one replay run shows. */

import { percentile } from "@kvasir/kit";
import { firstTokenMs, gapsMs } from "../completion-client.ts";
import type { ReplayOutcome, ReplayRow } from "./replay-run.ts";

export interface ReplaySummary {
  readonly requests: number;
  readonly failed: number;
  readonly firstErrors: readonly string[];
  readonly makespanSeconds: number;
  readonly promptTokens: number;
  readonly unavoidableTokens: number;
  /** Prompt tokens that the server computed; null when it does not report cached tokens. */
  readonly computedTokens: number | null;
  /** Computed ÷ unavoidable; 1 is the limit. */
  readonly overComputation: number | null;
  /** Cached share of prompt tokens, and the share that an endless cache would have. */
  readonly hit: number | null;
  readonly possibleHit: number;
  readonly outputTokens: number;
  readonly firstTurnTtftMs: Percentiles;
  readonly laterTurnTtftMs: Percentiles;
  readonly longestGapMs: number;
}

export interface Percentiles {
  readonly n: number;
  readonly p50: number;
  readonly p95: number;
  readonly max: number;
}

export function summarizeReplay(outcome: ReplayOutcome, promptTokens: number, unavoidableTokens: number): ReplaySummary {
  const served = outcome.rows.filter(({ record }) => record.error === null);
  const errors = outcome.rows.map(({ record }) => record.error).filter((error) => error !== null);
  const computedTokens = computedTokensOf(served);
  const ttft = (rows: readonly ReplayRow[]) =>
    percentilesOf(rows.map(({ record }) => firstTokenMs(record)).filter((ms) => Number.isFinite(ms)));
  return {
    requests: outcome.rows.length,
    failed: errors.length,
    firstErrors: errors.slice(0, 3),
    makespanSeconds: outcome.makespanSeconds,
    promptTokens,
    unavoidableTokens,
    computedTokens,
    overComputation: computedTokens === null ? null : computedTokens / unavoidableTokens,
    hit: computedTokens === null ? null : 1 - computedTokens / promptTokens,
    possibleHit: 1 - unavoidableTokens / promptTokens,
    outputTokens: served.reduce((total, { record }) => total + (record.outputTokens ?? 0), 0),
    firstTurnTtftMs: ttft(served.filter(({ turn }) => turn === 0)),
    laterTurnTtftMs: ttft(served.filter(({ turn }) => turn > 0)),
    longestGapMs: Math.max(0, ...served.flatMap(({ record }) => gapsMs(record.outputAtMs))),
  };
}

/** A single answer without a cached count makes the sum unknown: unknown is not 0. */
function computedTokensOf(rows: readonly ReplayRow[]): number | null {
  let computed = 0;
  for (const { record } of rows) {
    if (record.promptTokens === null || record.cachedTokens === null) return null;
    computed += record.promptTokens - record.cachedTokens;
  }
  return computed;
}

export function percentilesOf(values: readonly number[]): Percentiles {
  return {
    n: values.length,
    p50: percentile(values, 50),
    p95: percentile(values, 95),
    max: values.length === 0 ? Number.NaN : Math.max(...values),
  };
}
