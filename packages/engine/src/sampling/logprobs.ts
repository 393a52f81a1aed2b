/** Log-probabilities under the model itself, before any sampling setting. */

import { expOfNegative } from "./fast-exp.ts";
import { mostLikely } from "./logit-scan.ts";
import { TopTokens } from "./top-tokens.ts";

export interface RowLogprobs {
  /** Natural logarithm of the token's probability; -Infinity for a token that the model rules out. */
  readonly logprob: number;
  /** The most likely tokens in descending order, the lower id first among equals. */
  readonly top: ReadonlyArray<{ readonly token: number; readonly logprob: number }>;
}

/**
 * Log-softmax: logprob(t) = logit(t) − max − ln Σ exp(logit − max). NaN logits count as impossible tokens.
 * @param topCount how many alternatives to report, the token itself included when it is among them
 * @throws CodedError decode_failed when no logit is usable
 */
export function logprobsOf(logits: Float32Array, token: number, topCount: number): RowLogprobs {
  const largest = logits[mostLikely(logits)] as number;
  // A +Infinity logit takes all the probability; equals share it.
  const distance = (logit: number): number => (logit === largest ? 0 : logit - largest);
  let total = 0;
  for (let index = 0; index < logits.length; index++) total += expOfNegative(distance(logits[index] as number));
  const logTotal = Math.log(total);
  const logprob = (logit: number): number => (Number.isNaN(logit) ? Number.NEGATIVE_INFINITY : distance(logit) - logTotal);
  if (topCount === 0) return { logprob: logprob(logits[token] ?? Number.NaN), top: [] };
  const best = new TopTokens(Math.min(topCount, logits.length));
  best.select(logits);
  return {
    logprob: logprob(logits[token] ?? Number.NaN),
    top: best.descending().map((entry) => ({ token: entry.token, logprob: logprob(entry.logit) })),
  };
}
