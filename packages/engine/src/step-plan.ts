/**
 * How a step's prefill tokens are shared among the requests that are mid-prefill. Pure, so that fairness can be proved.
 *
 * The oldest request (the head) takes the whole budget, except while others are much shorter: these share half of it, the
 * shortest first. A short suffix therefore never waits behind a long cold prompt, the head never gets less than half, and
 * every request becomes the head in time: nobody starves.
 */

export interface PrefillDemand {
  /** Prompt tokens still to compute, at least 1. */
  readonly remainingTokens: number;
}

/** A request is much shorter than the head when it needs at most this share of the head's remaining tokens. */
const SHORT_SHARE = 0.25;

/**
 * @param demands in order of admission, the oldest first
 * @returns tokens for each demand, in the same order; they add up to min(budget, sum of demands) except that long requests
 *   behind the head wait
 */
export function sharePrefill(demands: readonly PrefillDemand[], budgetTokens: number): number[] {
  const shares = demands.map(() => 0);
  const head = demands[0];
  if (!head || budgetTokens <= 0) return shares;
  const short = demands
    .map((demand, index) => ({ index, remaining: demand.remainingTokens }))
    .filter(({ index, remaining }) => index > 0 && remaining <= head.remainingTokens * SHORT_SHARE)
    .sort((x, y) => x.remaining - y.remaining || x.index - y.index);
  let forShort = short.length > 0 ? Math.floor(budgetTokens / 2) : 0;
  let left = budgetTokens;
  const give = (index: number, tokens: number): void => {
    shares[index] = (shares[index] ?? 0) + tokens;
    left -= tokens;
  };
  for (const { index, remaining } of short) {
    const tokens = Math.min(remaining, forShort);
    give(index, tokens);
    forShort -= tokens;
  }
  for (const [index, demand] of demands.entries()) {
    give(index, Math.min(demand.remainingTokens - (shares[index] ?? 0), left));
  }
  return shares;
}
