/** Whether the lanes fit into memory, asked before they are allocated: an overcommitted host would end the process instead. */

import { CodedError, formatBytes, formatCount } from "@kvasir/kit";
import type { RoundTrip } from "./round-trip.ts";

/** libllama allocates cells in steps of this many tokens. */
const cellStep = 256;

export function roundedLaneTokens(laneTokens: number): number {
  return Math.ceil(laneTokens / cellStep) * cellStep;
}

/** Bytes of all lanes: KV of every cell, and recurrent state. */
export function kvBytesOf(laneCount: number, laneTokens: number, sizes: RoundTrip): number {
  return laneCount * (roundedLaneTokens(laneTokens) * sizes.kvBytesPerToken + sizes.recurrentBytesPerLane);
}

/**
 * @param availableBytes what is left for the lanes, after the weights
 * @throws CodedError kv_memory_insufficient with the bytes asked, the bytes there are, and the longest lanes that would fit
 */
export function checkKvFits(laneCount: number, laneTokens: number, sizes: RoundTrip, availableBytes: number): void {
  const askedBytes = kvBytesOf(laneCount, laneTokens, sizes);
  if (askedBytes <= availableBytes) return;
  const laneBytes = availableBytes / laneCount - sizes.recurrentBytesPerLane;
  const fittingTokens =
    sizes.kvBytesPerToken === 0 ? 0 : Math.max(0, Math.floor(laneBytes / sizes.kvBytesPerToken / cellStep) * cellStep);
  throw new CodedError(
    "kv_memory_insufficient",
    `${laneCount} lanes of ${formatCount(laneTokens)} tokens need ${formatBytes(askedBytes)} of KV memory and ${formatBytes(Math.max(0, availableBytes))} are there after the weights. ` +
      (fittingTokens > 0
        ? `${laneCount} lanes of ${formatCount(fittingTokens)} tokens would fit; fewer lanes may be longer.`
        : "No context fits beside these weights: use a smaller model or fewer lanes."),
  );
}
