/** Prompts of exact token ids: nothing depends on a tokenizer, and no two prompts share a prefix by accident. */

import { invariant, type SeededRandom } from "@kvasir/kit";

/** Ids drawn from [first, first + count): ordinary text tokens, away from control tokens. */
export interface TokenRange {
  readonly first: number;
  readonly count: number;
}

/** Fits every vocabulary of 41,000 tokens and more (the default model has 49,152). */
export const ordinaryTokens: TokenRange = { first: 1000, count: 40_000 };

export function randomPrompt(random: SeededRandom, length: number, range: TokenRange = ordinaryTokens): number[] {
  invariant(range.first >= 0 && range.count > 0, `no token in [${range.first}, ${range.first + range.count})`);
  return Array.from({ length }, () => range.first + random.below(range.count));
}
