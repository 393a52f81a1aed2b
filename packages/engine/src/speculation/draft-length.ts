/**
 * How many tokens to draft for one request: as many as pay. With acceptance probability p per token, k drafts give
 *
 *   E[tokens of a step] = 1 + p + p² + … + p^k = (1 - p^(k+1)) / (1 - p)      (Leviathan et al. 2023, eq. 1)
 *
 * for the time of a step with k more rows. The length with the most tokens per millisecond wins; 0 when plain decoding does.
 * p is a moving average of what was accepted, so speculation stops by itself on text that it cannot guess, and is tried again
 * after a while.
 */

const FIRST_ACCEPTANCE = 0.6;
const SMOOTHING = 0.15;
/** Steps without a draft after which one token is tried, to see whether the text has changed. */
const RETRY_STEPS = 24;

export class DraftLength {
  readonly #mostTokens: number;
  #acceptance = FIRST_ACCEPTANCE;
  #idleSteps = 0;

  constructor(mostTokens: number) {
    this.#mostTokens = mostTokens;
  }

  /** Estimated probability that a drafted token is right. */
  get acceptance(): number {
    return this.#acceptance;
  }

  /**
   * @param stepMs expected milliseconds of the step with this many rows in addition to those it has anyway
   * @returns 0..mostTokens
   */
  choose(stepMs: (moreRows: number) => number): number {
    let best = 0;
    let bestRate = 1 / stepMs(0);
    let expected = 1;
    for (let length = 1; length <= this.#mostTokens; length++) {
      expected += this.#acceptance ** length;
      const rate = expected / stepMs(length);
      if (rate <= bestRate) continue;
      best = length;
      bestRate = rate;
    }
    if (best > 0) {
      this.#idleSteps = 0;
      return best;
    }
    this.#idleSteps++;
    if (this.#idleSteps < RETRY_STEPS) return 0;
    this.#idleSteps = 0;
    return 1;
  }

  /** Learns from a verified draft. Tokens behind the first wrong one say nothing. */
  record(draftedTokens: number, acceptedTokens: number): void {
    for (let i = 0; i < Math.min(acceptedTokens + 1, draftedTokens); i++) {
      this.#acceptance += SMOOTHING * ((i < acceptedTokens ? 1 : 0) - this.#acceptance);
    }
  }
}
