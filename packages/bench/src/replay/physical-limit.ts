/**
 * The least time in which this machine can do the work of a replay: every unavoidable token once, at the solo speed of its
 * depth, and the decode steps at the batch sizes that the run reached. Kernel speeds come from a calibration in the same run.
 */

import { invariant } from "@kvasir/kit";
import { firstTokenMs, lastTokenMs } from "../completion-client.ts";
import type { ReplayRow } from "./replay-run.ts";

/** seconds(n) = linear·n + quadratic·n²: every token costs the same, and attention grows with what lies before it. */
export interface PrefillCost {
  readonly linear: number;
  readonly quadratic: number;
}

/** Seconds of one decode step of `batch` sequences that hold `depth` tokens each. */
export interface DecodePoint {
  readonly batch: number;
  readonly depth: number;
  readonly stepSeconds: number;
}

export interface PhysicalLimit {
  readonly prefillSeconds: number;
  readonly decodeSeconds: number;
  readonly seconds: number;
  /** Mean number of sequences that decoded together, weighted by tokens. */
  readonly meanDecodeBatch: number;
}

/** Least squares on relative errors, so that the short prompt counts as much as the long one. At least two different lengths. */
export function fitPrefillCost(points: ReadonlyArray<{ readonly tokens: number; readonly seconds: number }>): PrefillCost {
  invariant(new Set(points.map(({ tokens }) => tokens)).size >= 2, "two prompt lengths are needed to fit two parameters");
  // minimise Σ (1 − a·x − b·y)² with x = n/t and y = n²/t
  let xx = 0;
  let xy = 0;
  let yy = 0;
  let x1 = 0;
  let y1 = 0;
  for (const { tokens, seconds } of points) {
    const x = tokens / seconds;
    const y = tokens ** 2 / seconds;
    xx += x * x;
    xy += x * y;
    yy += y * y;
    x1 += x;
    y1 += y;
  }
  const determinant = xx * yy - xy * xy;
  return { linear: (x1 * yy - y1 * xy) / determinant, quadratic: (y1 * xx - x1 * xy) / determinant };
}

/** The token at depth d costs seconds(d + 1) − seconds(d) = linear + quadratic·(2d + 1). */
export function prefillSecondsOf(unavoidableByDepth: readonly number[], cost: PrefillCost): number {
  return unavoidableByDepth.reduce(
    (total, count, depth) => total + count * (cost.linear + cost.quadratic * (2 * depth + 1)),
    0,
  );
}

export function physicalLimit(
  unavoidableByDepth: readonly number[],
  rows: readonly ReplayRow[],
  prefill: PrefillCost,
  decode: readonly DecodePoint[],
): PhysicalLimit {
  const prefillSeconds = prefillSecondsOf(unavoidableByDepth, prefill);
  const streams = rows.filter(({ record }) => record.outputAtMs.length > 1).map((row) => decodeSpan(row));
  let decodeSeconds = 0;
  let weighted = 0;
  let tokens = 0;
  for (const stream of streams) {
    const batch = meanOverlap(stream, streams);
    decodeSeconds += stream.steps * (stepSeconds(decode, batch, stream.depth) / batch);
    weighted += stream.steps * batch;
    tokens += stream.steps;
  }
  return {
    prefillSeconds,
    decodeSeconds,
    seconds: prefillSeconds + decodeSeconds,
    meanDecodeBatch: tokens === 0 ? 0 : weighted / tokens,
  };
}

interface DecodeSpan {
  readonly fromMs: number;
  readonly toMs: number;
  /** Decode steps: the first token comes from the prefill. */
  readonly steps: number;
  readonly depth: number;
}

function decodeSpan({ record }: ReplayRow): DecodeSpan {
  return {
    fromMs: record.dispatchedAtMs + firstTokenMs(record),
    toMs: record.dispatchedAtMs + lastTokenMs(record),
    steps: (record.outputTokens ?? record.outputAtMs.length) - 1,
    depth: record.promptTokens ?? 0,
  };
}

/** Sequences that decoded at the same time, itself included, averaged over its own span. */
function meanOverlap(own: DecodeSpan, all: readonly DecodeSpan[]): number {
  const durationMs = own.toMs - own.fromMs;
  if (durationMs <= 0) return 1;
  return (
    all.reduce((total, other) => total + Math.max(0, Math.min(own.toMs, other.toMs) - Math.max(own.fromMs, other.fromMs)), 0) /
    durationMs
  );
}

/** Linear in the batch size between the calibrated ones (beyond them: their end values scaled by batch), and in the depth. */
export function stepSeconds(points: readonly DecodePoint[], batch: number, depth: number): number {
  const batches = [...new Set(points.map((point) => point.batch))].sort((x, y) => x - y);
  invariant(batches.length > 0, "no decode calibration");
  const atBatch = (size: number) =>
    interpolate(
      points.filter((point) => point.batch === size).map((point) => [point.depth, point.stepSeconds] as const),
      depth,
    );
  const largest = batches.at(-1) ?? 1;
  if (batch >= largest) return atBatch(largest) * (batch / largest);
  return interpolate(
    batches.map((size) => [size, atBatch(size)] as const),
    batch,
  );
}

/** Through the points in x order, the end segments prolonged; one point is a constant. */
function interpolate(points: ReadonlyArray<readonly [x: number, y: number]>, x: number): number {
  const sorted = [...points].sort(([a], [b]) => a - b);
  const upperIndex = Math.max(
    1,
    sorted.findIndex(([at]) => at >= x) === -1 ? sorted.length - 1 : sorted.findIndex(([at]) => at >= x),
  );
  const lower = sorted[upperIndex - 1] ?? sorted[0];
  const upper = sorted[upperIndex];
  invariant(lower !== undefined, "no point to interpolate");
  if (upper === undefined) return lower[1];
  return lower[1] + ((x - lower[0]) / (upper[0] - lower[0])) * (upper[1] - lower[1]);
}
