/**
 * What a step will take, learnt from the steps that ran. Pure arithmetic on measured times; no clock of its own.
 *
 *   step time ≈ decode(rows) + prefillTokens × rate(size class of the chunk, depth)
 *
 * decode(rows): moving average by the number of decoding rows, drafted ones included. The rate is kept for each power of two of
 * the chunk's size apart, because kernels change with it: on a CPU, attention over a long context takes twice the time a token
 * in chunks of fewer than 64 rows. One rate for all sizes would be a trap: a few small chunks make every size look dear, so
 * chunks stay small.
 */

import { PrefillRate } from "./prefill-rate.ts";

const DECODE_SMOOTHING = 0.3;
/** Share of the target that a step is planned for: estimates are off by about a tenth. */
const PLANNED_SHARE = 0.9;

export class StepCost {
  readonly #decodeMs: number[] = [];
  /** By size class. */
  readonly #rates: PrefillRate[] = [];

  /** Records a step that ran. `prefillDepth`: mean position of the prefilled tokens. */
  record(step: { decodeRows: number; prefillTokens: number; prefillDepth: number; milliseconds: number }): void {
    const { decodeRows, prefillTokens, prefillDepth, milliseconds } = step;
    if (prefillTokens > 0) {
      const cost = Math.max(milliseconds - this.decodeMs(decodeRows), 0) / prefillTokens;
      this.#rateOf(sizeClass(prefillTokens, decodeRows)).record(prefillTokens, prefillDepth, cost);
    } else if (decodeRows > 0) {
      const known = this.#decodeMs[decodeRows];
      this.#decodeMs[decodeRows] = known === undefined ? milliseconds : known + DECODE_SMOOTHING * (milliseconds - known);
    }
  }

  /**
   * Expected milliseconds of a step that only decodes `rows` rows: measured, or on the line between the nearest measured sizes.
   * Beyond the largest, each row costs what a token of a small chunk costs. 0 before any step ran.
   */
  decodeMs(rows: number): number {
    if (rows === 0) return 0;
    const measured = this.#decodeMs[rows];
    if (measured !== undefined) return measured;
    const below = this.#nearestMeasured(rows, -1);
    const above = this.#nearestMeasured(rows, 1);
    const belowMs = this.#decodeMs[below] ?? 0;
    const aboveMs = this.#decodeMs[above] ?? 0;
    if (below > 0 && above > 0) return belowMs + ((aboveMs - belowMs) * (rows - below)) / (above - below);
    if (below > 0) return belowMs + (rows - below) * (this.prefillMsPerToken(rows, 0) ?? 0);
    return aboveMs;
  }

  #nearestMeasured(rows: number, direction: 1 | -1): number {
    for (let size = rows; size > 0 && size < this.#decodeMs.length; size += direction) {
      if (this.#decodeMs[size] !== undefined) return size;
    }
    return direction === -1 && rows >= this.#decodeMs.length ? this.#nearestMeasured(this.#decodeMs.length - 1, -1) : 0;
  }

  /**
   * Expected milliseconds per token of a chunk of `tokens` around `depth`, by its own size class or the nearest measured one, the
   * smaller first; undefined before any chunk ran.
   */
  prefillMsPerToken(tokens: number, depth: number, decodeRows = 0): number | undefined {
    return this.#nearestRate(sizeClass(tokens, decodeRows))?.msPerToken(depth);
  }

  #nearestRate(size: number): PrefillRate | undefined {
    const smaller = this.#rates.findLast((rate, other) => other <= size && rate.isMeasured);
    return smaller ?? this.#rates.find(({ isMeasured }) => isMeasured);
  }

  /** Most prefill tokens that keep a step with `decodeRows` running streams under `targetMs`; at least `leastTokens`. */
  prefillBudget(options: {
    decodeRows: number;
    depth: number;
    targetMs: number;
    leastTokens: number;
    mostTokens: number;
  }): number {
    const { decodeRows, depth, mostTokens } = options;
    if (decodeRows === 0) return mostTokens;
    const leastTokens = Math.min(options.leastTokens, mostTokens);
    const room = options.targetMs * PLANNED_SHARE - this.decodeMs(decodeRows);
    for (let size = sizeClass(mostTokens, decodeRows); size >= 0; size--) {
      const rate = this.#nearestRate(size);
      if (rate === undefined) return leastTokens;
      const smallest = 2 ** size + 1;
      // Where the class was never seen this deep, its smallest chunk finds out what it costs.
      const largest = rate.reaches(depth) ? Math.min(2 ** (size + 1), mostTokens) : smallest;
      const fitting = Math.min(Math.floor(room / rate.msPerToken(depth + smallest / 2)), largest);
      if (fitting >= smallest) return Math.max(fitting, leastTokens);
    }
    return leastTokens;
  }

  #rateOf(size: number): PrefillRate {
    while (this.#rates.length <= size) this.#rates.push(new PrefillRate());
    return this.#rates[size] as PrefillRate;
  }
}

/**
 * Power of two of the rows that a chunk is computed in. Beside decoding lanes the first prefilled row shares their pass, so that
 * 65 tokens are the first whose main pass has 64 rows.
 */
function sizeClass(tokens: number, decodeRows: number): number {
  return Math.floor(Math.log2(Math.max(decodeRows > 0 ? tokens - 1 : tokens, 1)));
}
