/** A figure of ours beside the same figure of a peer, measured in the same rounds. */

import { pairRatios, type Spread, spreadOf } from "./pair-ratios.ts";
import { formatFigure, formatSpread, type TextTable } from "./text-table.ts";

/** Whose clock the figure comes from: the server's own phases, or the client's. */
export type FigureClock = "engine" | "wall";

export interface Comparison {
  readonly figure: string;
  readonly unit: string;
  readonly clock: FigureClock;
  readonly peer: string;
  /** Unrounded, one a round, both in the same order. */
  readonly ours: readonly number[];
  readonly theirs: readonly number[];
  /** What the ratio ours ÷ theirs should reach. */
  readonly goal?: { readonly kind: "at-least" | "at-most"; readonly ratio: number };
}

export interface ComparisonSummary {
  readonly ours: Spread;
  readonly theirs: Spread;
  readonly ratio: Spread;
  /** null: no goal. */
  readonly isGoalMet: boolean | null;
}

export function summarize(comparison: Comparison): ComparisonSummary {
  const ratio = pairRatios(comparison.ours, comparison.theirs);
  const { goal } = comparison;
  const isGoalMet =
    goal === undefined ? null : goal.kind === "at-least" ? ratio.median >= goal.ratio : ratio.median <= goal.ratio;
  return { ours: spreadOf(comparison.ours), theirs: spreadOf(comparison.theirs), ratio, isGoalMet };
}

/** One row a comparison: medians with ranges, the median of the pair ratios with its range, n rounds. */
export function comparisonTable(comparisons: readonly Comparison[]): TextTable {
  return {
    columns: ["Figure", "Clock", "Peer", "Kvasir", "Peer's", "Ratio", "n", "Goal"],
    rows: comparisons.map((comparison) => {
      const { ours, theirs, ratio, isGoalMet } = summarize(comparison);
      const goal =
        comparison.goal === undefined
          ? ""
          : `${comparison.goal.kind === "at-least" ? "≥" : "≤"} ${formatFigure(comparison.goal.ratio)} ${isGoalMet ? "met" : "missed"}`;
      return [
        `${comparison.figure}, ${comparison.unit}`,
        comparison.clock,
        comparison.peer,
        formatSpread(ours),
        formatSpread(theirs),
        formatSpread(ratio),
        `${ratio.n}`,
        goal,
      ];
    }),
  };
}
