/**
 * What a step will take, learnt from the steps that ran. Pure arithmetic on measured times; no clock of its own.
 *
 *   step time ≈ decode(rows) + prefillTokens × (a + b × depth)
 *
 * decode(rows): moving average by the number of decoding rows, drafted ones included. a, b: least squares over recent chunks with exponential
 * forgetting; depth is the mean position of the chunk's tokens, because attention grows with it (`bench-plan` time model
 * f(n) = a·n + b·n², whose derivative is linear in depth).
 */

const FORGET = 0.95;
const DECODE_SMOOTHING = 0.3;

export class StepCost {
  readonly #decodeMs: number[] = [];
  /** Forgetting sums of weight, depth, cost, depth², depth × cost over chunks; cost in ms per token. */
  #weight = 0;
  #depth = 0;
  #cost = 0;
  #depthSquared = 0;
  #depthCost = 0;

  /** Records a step that ran. `prefillDepth`: mean position of the prefilled tokens. */
  record(step: { decodeRows: number; prefillTokens: number; prefillDepth: number; milliseconds: number }): void {
    if (step.prefillTokens === 0) {
      if (step.decodeRows === 0) return;
      const known = this.#decodeMs[step.decodeRows];
      this.#decodeMs[step.decodeRows] =
        known === undefined ? step.milliseconds : known + DECODE_SMOOTHING * (step.milliseconds - known);
      return;
    }
    const cost = Math.max(step.milliseconds - this.decodeMs(step.decodeRows), 0) / step.prefillTokens;
    const share = step.prefillTokens;
    this.#weight = this.#weight * FORGET + share;
    this.#depth = this.#depth * FORGET + share * step.prefillDepth;
    this.#cost = this.#cost * FORGET + share * cost;
    this.#depthSquared = this.#depthSquared * FORGET + share * step.prefillDepth ** 2;
    this.#depthCost = this.#depthCost * FORGET + share * step.prefillDepth * cost;
  }

  /**
   * Expected milliseconds of a step that only decodes `rows` rows: measured, or on the line between the nearest measured sizes.
   * Beyond the largest, each row costs what a prefilled token costs. 0 before any step ran.
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
    if (below > 0) return belowMs + (rows - below) * (this.prefillMsPerToken(0) ?? 0);
    return aboveMs;
  }

  #nearestMeasured(rows: number, direction: 1 | -1): number {
    for (let size = rows; size > 0 && size < this.#decodeMs.length; size += direction) {
      if (this.#decodeMs[size] !== undefined) return size;
    }
    return direction === -1 && rows >= this.#decodeMs.length ? this.#nearestMeasured(this.#decodeMs.length - 1, -1) : 0;
  }

  /** Expected milliseconds per prefilled token around `depth`; undefined before any chunk ran. */
  prefillMsPerToken(depth: number): number | undefined {
    if (this.#weight === 0) return undefined;
    const meanDepth = this.#depth / this.#weight;
    const meanCost = this.#cost / this.#weight;
    const variance = this.#depthSquared / this.#weight - meanDepth ** 2;
    const covariance = this.#depthCost / this.#weight - meanDepth * meanCost;
    const slope = variance > 1 ? Math.max(covariance / variance, 0) : 0;
    return Math.max(meanCost + slope * (depth - meanDepth), meanCost / 8, 1e-6);
  }

  /** Most prefill tokens that keep a step with `decodeRows` running streams under `targetMs`; at least `leastTokens`. */
  prefillBudget(options: {
    decodeRows: number;
    depth: number;
    targetMs: number;
    leastTokens: number;
    mostTokens: number;
  }): number {
    if (options.decodeRows === 0) return options.mostTokens;
    const perToken = this.prefillMsPerToken(options.depth);
    if (perToken === undefined) return Math.min(options.leastTokens, options.mostTokens);
    const room = options.targetMs - this.decodeMs(options.decodeRows);
    const fitting = Math.floor(room / perToken);
    // Kernels work in tiles: an odd remainder costs a whole one.
    const tiled = fitting > 64 ? fitting - (fitting % 32) : fitting;
    return Math.min(Math.max(tiled, options.leastTokens), options.mostTokens);
  }
}
