/**
 * How many lanes of how many tokens, from the options, the model and the memory that there is. Refuses what cannot work before
 * a process starts.
 *
 *   KV bytes = lanes × (lane tokens, rounded up to 256, × bytes a token + recurrent state of a sequence)
 */

import { CodedError, formatBytes, formatCount, MIB } from "@kvasir/kit";
import { type GgufFacts, kvBytesPerToken, recurrentStateBytes } from "@kvasir/models";
import { type Configuration, flagName } from "../config/options.ts";

export interface CapacityPlan {
  readonly laneCount: number;
  readonly laneTokens: number;
  readonly maxConcurrency: number;
  readonly kvBytesPerToken: number;
  readonly kvBytes: number;
  /** What decided the window. */
  readonly windowLimit: "model" | "memory" | "option";
}

export type CapacityOptions = Pick<
  Configuration,
  "maxContextTokens" | "maxConcurrency" | "lanes" | "kvCapacityTokens" | "kvDtype"
>;

/** libllama allocates the cells of a lane in steps of this many tokens. */
const cellStepTokens = 256;
/** Kept free for compute buffers and the process itself. */
const reservedBytes = 256 * MIB;
/** Share of the free memory that an automatic window takes at most. */
const automaticShare = 0.8;

/**
 * @param availableBytes host memory that programs can still get, or null when the KV goes to a device that checks for itself
 * @throws CodedError invalid_configuration for numbers that contradict each other, kv_memory_insufficient with the bytes asked,
 *   the bytes there are, and the longest window that would fit
 */
export function planCapacity(options: CapacityOptions, facts: GgufFacts, availableBytes: number | null): CapacityPlan {
  const bytesPerToken = kvBytesPerToken(facts, { kType: options.kvDtype, vType: options.kvDtype });
  const bytesPerSequence = recurrentStateBytes(facts);
  const { laneCount, mostTokens } = chooseLanes(options, facts);
  const kvBytesOf = (tokens: number): number =>
    laneCount * (Math.ceil(tokens / cellStepTokens) * cellStepTokens * bytesPerToken + bytesPerSequence);
  const fittingTokens = (bytes: number): number => {
    if (bytesPerToken === 0) return bytes >= laneCount * bytesPerSequence ? Number.POSITIVE_INFINITY : 0;
    return Math.max(0, Math.floor((bytes / laneCount - bytesPerSequence) / bytesPerToken / cellStepTokens) * cellStepTokens);
  };
  const plan = (laneTokens: number, windowLimit: CapacityPlan["windowLimit"]): CapacityPlan => ({
    laneCount,
    laneTokens,
    maxConcurrency: options.maxConcurrency,
    kvBytesPerToken: bytesPerToken,
    kvBytes: kvBytesOf(laneTokens),
    windowLimit,
  });
  if (availableBytes === null) return plan(mostTokens, limitOf(options));
  const freeBytes = Math.max(0, availableBytes - facts.tensorBytes - reservedBytes);
  if (kvBytesOf(mostTokens) <= freeBytes && options.maxContextTokens !== null) return plan(mostTokens, limitOf(options));
  const automatic = fittingTokens(freeBytes * automaticShare);
  if (options.maxContextTokens === null && automatic >= Math.min(mostTokens, cellStepTokens)) {
    return automatic >= mostTokens ? plan(mostTokens, limitOf(options)) : plan(automatic, "memory");
  }
  throw insufficient(laneCount, mostTokens, kvBytesOf(mostTokens), freeBytes, fittingTokens(freeBytes));
}

function limitOf(options: CapacityOptions): CapacityPlan["windowLimit"] {
  return options.maxContextTokens === null && options.kvCapacityTokens === null ? "model" : "option";
}

/** Lanes, and the most tokens of one before memory is looked at. */
function chooseLanes(options: CapacityOptions, facts: GgufFacts): { laneCount: number; mostTokens: number } {
  const { maxConcurrency, kvCapacityTokens, lanes } = options;
  if (lanes !== null && kvCapacityTokens !== null) {
    throw invalid("--lanes and --kv-capacity-tokens both say how much KV there is; give one of them");
  }
  if (lanes !== null && lanes < maxConcurrency) {
    throw invalid(
      `--lanes is ${lanes}; each of the ${maxConcurrency} concurrent requests needs a lane: give at least ${maxConcurrency}, or lower --${flagName("maxConcurrency")}`,
    );
  }
  if (kvCapacityTokens === null) {
    return { laneCount: lanes ?? maxConcurrency, mostTokens: options.maxContextTokens ?? facts.trainingContextTokens };
  }
  const share = Math.floor(kvCapacityTokens / maxConcurrency);
  const mostTokens = options.maxContextTokens ?? Math.min(facts.trainingContextTokens, share);
  if (mostTokens > share || mostTokens < 1) {
    throw invalid(
      `--kv-capacity-tokens is ${formatCount(kvCapacityTokens)}; ${maxConcurrency} concurrent requests of ${formatCount(mostTokens)} tokens need ` +
        `${formatCount(maxConcurrency * mostTokens)}: raise it, or lower --max-concurrency or --max-context-tokens`,
    );
  }
  return { laneCount: Math.max(maxConcurrency, Math.min(256, Math.floor(kvCapacityTokens / mostTokens))), mostTokens };
}

function invalid(message: string): CodedError {
  return new CodedError("invalid_configuration", `${message}.`);
}

function insufficient(
  laneCount: number,
  tokens: number,
  askedBytes: number,
  freeBytes: number,
  fittingTokens: number,
): CodedError {
  const wayOut =
    fittingTokens > 0
      ? `${laneCount} lanes of ${formatCount(fittingTokens)} tokens would fit: use --max-context-tokens ${fittingTokens}, or fewer lanes (--max-concurrency)`
      : "no context fits beside these weights: use a smaller model, or fewer lanes (--max-concurrency)";
  return new CodedError(
    "kv_memory_insufficient",
    `${laneCount} lanes of ${formatCount(tokens)} tokens need ${formatBytes(askedBytes)} of KV memory (${formatCount(askedBytes)} bytes); ` +
      `${formatBytes(freeBytes)} (${formatCount(freeBytes)} bytes) are there after the weights and ${formatBytes(reservedBytes)} for buffers. ${wayOut}.`,
    { param: "maxContextTokens" },
  );
}
