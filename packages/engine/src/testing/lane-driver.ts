/** Feeds tokens to a backend the way the engine does, and compares rows of logits. For conformance cases only. */

import assert from "node:assert/strict";
import type { Backend, DecodeOutcome } from "../backend.ts";
import { Batch } from "../batch.ts";

/** Consecutive tokens for one lane, appended to what it holds. */
export interface LaneRows {
  readonly lane: number;
  readonly tokens: readonly number[];
  /** Indices into `tokens` whose logits are wanted. Default: the last. */
  readonly outputs?: readonly number[];
}

/** A batch with the given rows and where its outputs are: lane by lane, in the order asked. */
export function batchOf(backend: Backend, parts: readonly LaneRows[]): { batch: Batch; outputRows: number[][] } {
  const batch = new Batch(parts.reduce((rows, { tokens }) => rows + tokens.length, 0));
  const outputRows = parts.map(({ lane, tokens, outputs = [tokens.length - 1] }) => {
    const start = backend.storedTokens(lane);
    const rows = tokens.map((token, index) => batch.push(lane, start + index, token, outputs.includes(index)));
    return outputs.map((index) => rows[index] ?? -1);
  });
  return { batch, outputRows };
}

/** Decodes one batch and copies the wanted logits. */
export async function decodeRows(backend: Backend, parts: readonly LaneRows[]): Promise<Float32Array[][]> {
  const { batch, outputRows } = batchOf(backend, parts);
  assert.equal(await backend.decode(batch), "done");
  return outputRows.map((rows) => rows.map((row) => backend.logitsOf(row).slice()));
}

/** Appends `tokens` to a lane in chunks and returns the logits of the last one. */
export async function feed(
  backend: Backend,
  lane: number,
  tokens: readonly number[],
  chunkRows = backend.facts.batchTokens,
): Promise<Float32Array> {
  let last: Float32Array | undefined;
  for (let start = 0; start < tokens.length; start += chunkRows) {
    const [outputs] = await decodeRows(backend, [{ lane, tokens: tokens.slice(start, start + chunkRows) }]);
    last = outputs?.[0];
  }
  assert.ok(last, "feed needs at least one token");
  return last;
}

/** Calls `decode` and turns a thrown error into a rejection: a backend may refuse either way. */
export async function tryDecode(backend: Backend, batch: Batch): Promise<DecodeOutcome> {
  return await backend.decode(batch);
}

/** `length` tokens of the vocabulary without end tokens; another `seed` gives other ones. */
export function promptTokens(backend: Backend, seed: number, length: number): number[] {
  const { vocabSize, endTokens } = backend.facts;
  const ends = new Set(endTokens);
  const tokens: number[] = [];
  for (let step = seed * 7919 + 11; tokens.length < length; step += 13) {
    const token = (step * 31) % vocabSize;
    if (!ends.has(token)) tokens.push(token);
  }
  return tokens;
}

export function mostLikelyOf(logits: Float32Array): number {
  return logits.reduce((best, logit, token) => (logit > (logits[best] ?? Number.NEGATIVE_INFINITY) ? token : best), 0);
}

/** Largest difference of two rows as a share of the spread (largest − smallest logit) of the second. */
export function differenceShare(actual: Float32Array, expected: Float32Array): number {
  assert.equal(actual.length, expected.length);
  let difference = 0;
  let largest = Number.NEGATIVE_INFINITY;
  let smallest = Number.POSITIVE_INFINITY;
  for (const [token, logit] of expected.entries()) {
    const other = actual[token] ?? Number.NaN;
    assert.ok(Number.isFinite(logit) && Number.isFinite(other), `logit of token ${token} is not finite: ${logit}, ${other}`);
    difference = Math.max(difference, Math.abs(other - logit));
    largest = Math.max(largest, logit);
    smallest = Math.min(smallest, logit);
  }
  return difference / Math.max(largest - smallest, Number.MIN_VALUE);
}

/**
 * Two rows of the same tokens agree: no logit differs by more than the tolerance, so the greedy choice can only differ where
 * the two best tokens are closer than twice that.
 */
export function assertSameRow(actual: Float32Array, expected: Float32Array, toleranceShare: number, what: string): void {
  const share = differenceShare(actual, expected);
  assert.ok(
    share <= toleranceShare,
    `${what}: logits differ by ${(share * 100).toFixed(3)} % of their spread, at most ${toleranceShare * 100} % may`,
  );
}
