/**
 * Whether pages work for this model: a short prompt is computed, its rows are cut into pages, put together again and
 * continued. The logits must be those of the original, within what computing the same token again in the same cells changes,
 * and 1 % of their spread.
 */

import { type Backend, Batch, type LanePiece, type LaneRows } from "@kvasir/engine";
import { invariant } from "@kvasir/kit";

const lane = 0;
const promptTokens = 8;
const toleranceShare = 0.01;

/** Fills the empty lane with a prompt, so that its layout can be read. */
export async function fillLane(backend: Backend): Promise<void> {
  await decode(backend, 0, promptTokens);
}

/**
 * The lane holds what `fillLane` wrote; it is empty afterwards.
 * @returns why pages must not be used, or null
 */
export async function rowsFault(backend: Backend, rows: LaneRows): Promise<string | null> {
  const original = await decode(backend, promptTokens, 1);
  backend.truncate(lane, promptTokens);
  const again = await decode(backend, promptTokens, 1);
  backend.truncate(lane, promptTokens);
  // Pages that overlap: of the first one only a part is used.
  const pieces = [pageOf(rows, 0, 5, 4), pageOf(rows, 4, promptTokens - 4, promptTokens - 4)];
  backend.truncate(lane, 0);
  rows.write(lane, pieces);
  const restored = await decode(backend, promptTokens, 1);
  backend.truncate(lane, 0);
  const tolerance = distance(original, again) + toleranceShare * spread(original);
  const found = distance(original, restored);
  return found <= tolerance
    ? null
    : `logits after a restore differ by ${found.toPrecision(3)}, more than ${tolerance.toPrecision(3)}`;
}

function pageOf(rows: LaneRows, from: number, stride: number, count: number): LanePiece {
  const bytes = new Uint8Array(stride * rows.layout.bytesPerToken);
  rows.read(lane, from, stride, bytes);
  return { bytes, stride, count };
}

async function decode(backend: Backend, from: number, count: number): Promise<Float32Array> {
  const batch = new Batch(count);
  for (let i = 0; i < count; i++) batch.push(lane, from + i, (from + i + 1) % backend.facts.vocabSize, i === count - 1);
  const outcome = await backend.decode(batch);
  invariant(outcome === "done", `the self-test's decode ended with ${outcome}`);
  return backend.logitsOf(count - 1).slice();
}

function distance(one: Float32Array, other: Float32Array): number {
  return one.reduce((most, value, index) => Math.max(most, Math.abs(value - (other[index] ?? 0))), 0);
}

function spread(logits: Float32Array): number {
  let [least, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const value of logits) {
    least = Math.min(least, value);
    most = Math.max(most, value);
  }
  return most - least;
}
