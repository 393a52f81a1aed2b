/** The numbers of a response: OpenAI's `usage` and llama.cpp's `timings`. */

import type { ChoiceReport, Usage } from "./generation.ts";

export interface OpenAiUsage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: { readonly cached_tokens: number };
}

export function openAiUsage({ promptTokens, cachedTokens, outputTokens }: Usage): OpenAiUsage {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: outputTokens,
    total_tokens: promptTokens + outputTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
  };
}

/**
 * llama.cpp's names first, then our phases. Milliseconds of the engine's clock; a rate that nothing was measured for is 0.
 *
 *   prompt     prompt_n tokens computed in prompt_ms = prefill_ms, the first output token included
 *   predicted  predicted_n tokens; all but the first took predicted_ms = decode_ms, so the rate is (predicted_n - 1) / predicted_ms
 */
export interface TimingsBody {
  readonly cache_n: number;
  readonly prompt_n: number;
  readonly prompt_ms: number;
  readonly prompt_per_token_ms: number;
  readonly prompt_per_second: number;
  readonly predicted_n: number;
  readonly predicted_ms: number;
  readonly predicted_per_token_ms: number;
  readonly predicted_per_second: number;
  readonly queue_ms: number;
  readonly restore_ms: number;
  readonly prefill_ms: number;
  readonly decode_ms: number;
  /** Of cache_n: copied from host memory, and read back from disk; the rest was on the device. */
  readonly cache_host_n: number;
  readonly cache_disk_n: number;
  /** What cache_n would be with an infinite cache. */
  readonly cache_possible_n: number;
  /** Only where speculation drafted. */
  readonly draft_n?: number;
  readonly draft_n_accepted?: number;
}

export type TimedCounts = Pick<ChoiceReport, "cachedTokens" | "computedTokens" | "outputTokens" | "timings"> &
  Partial<Pick<ChoiceReport, "draftedTokens" | "acceptedTokens" | "hostTokens" | "diskTokens" | "possibleTokens">>;

export function timingsBody(counts: TimedCounts): TimingsBody {
  const { cachedTokens, computedTokens, outputTokens, timings, draftedTokens = 0, acceptedTokens = 0 } = counts;
  const { hostTokens = 0, diskTokens = 0, possibleTokens = cachedTokens } = counts;
  const { queueMs, restoreMs, prefillMs, decodeMs } = timings;
  const laterTokens = Math.max(outputTokens - 1, 0);
  return {
    cache_n: cachedTokens,
    prompt_n: computedTokens,
    prompt_ms: prefillMs,
    prompt_per_token_ms: ratio(prefillMs, computedTokens),
    prompt_per_second: ratio(1000 * computedTokens, prefillMs),
    predicted_n: outputTokens,
    predicted_ms: decodeMs,
    predicted_per_token_ms: ratio(decodeMs, laterTokens),
    predicted_per_second: ratio(1000 * laterTokens, decodeMs),
    queue_ms: queueMs,
    restore_ms: restoreMs,
    prefill_ms: prefillMs,
    decode_ms: decodeMs,
    cache_host_n: hostTokens,
    cache_disk_n: diskTokens,
    cache_possible_n: possibleTokens,
    ...(draftedTokens > 0 ? { draft_n: draftedTokens, draft_n_accepted: acceptedTokens } : {}),
  };
}

function ratio(dividend: number, divisor: number): number {
  return divisor > 0 ? dividend / divisor : 0;
}
