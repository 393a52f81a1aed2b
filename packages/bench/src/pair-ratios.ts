/** Two contenders measured in turn: the ratio inside each round cancels what drifts slowly (heat, clocks, neighbours). */

import { invariant, median } from "@kvasir/kit";

export interface Spread {
  readonly n: number;
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** Median with the whole range. An empty list gives NaN everywhere and n = 0. */
export function spreadOf(values: readonly number[]): Spread {
  const finite = values.length > 0;
  return {
    n: values.length,
    median: median(values),
    min: finite ? Math.min(...values) : Number.NaN,
    max: finite ? Math.max(...values) : Number.NaN,
  };
}

/**
 * Ratio of each round, `ours[i] / theirs[i]`, then its median and range. Not the ratio of medians: rounds stay together.
 * @param ours one unrounded value a round
 * @param theirs the values of the same rounds
 */
export function pairRatios(ours: readonly number[], theirs: readonly number[]): Spread {
  invariant(ours.length === theirs.length, `${ours.length} values of one contender against ${theirs.length} of the other`);
  return spreadOf(ours.map((value, round) => value / (theirs[round] ?? Number.NaN)));
}

/**
 * Who runs when: every round runs everybody once, and the starter moves on by one a round, so that nobody always runs first
 * on a machine that the one before has warmed.
 */
export function roundOrder<Contender>(contenders: readonly Contender[], round: number): Contender[] {
  return contenders.map((_, position) => contenders[(position + round) % contenders.length] as Contender);
}
