/**
 * What a prefilled token costs in chunks of one size class, learnt from the chunks that ran: milliseconds = a + b × depth.
 *
 * a, b: least squares over recent chunks with exponential forgetting; depth is the mean position of the chunk's tokens, because
 * attention grows with it (time model f(n) = a·n + b·n², whose derivative is linear in depth).
 */

const FORGET = 0.95;
const REACH_TOKENS = 256;

export class PrefillRate {
  /** Forgetting sums of weight, depth, cost, depth², depth × cost over chunks; cost in ms per token. */
  #weight = 0;
  #depth = 0;
  #cost = 0;
  #depthSquared = 0;
  #depthCost = 0;

  #deepest = 0;

  get isMeasured(): boolean {
    return this.#weight > 0;
  }

  record(tokens: number, depth: number, msPerToken: number): void {
    this.#deepest = Math.max(this.#deepest, depth);
    this.#weight = this.#weight * FORGET + tokens;
    this.#depth = this.#depth * FORGET + tokens * depth;
    this.#cost = this.#cost * FORGET + tokens * msPerToken;
    this.#depthSquared = this.#depthSquared * FORGET + tokens * depth ** 2;
    this.#depthCost = this.#depthCost * FORGET + tokens * depth * msPerToken;
  }

  /** Whether `depth` is about as deep as chunks of this class went; beyond, the line is a guess. */
  reaches(depth: number): boolean {
    return depth <= this.#deepest + REACH_TOKENS;
  }

  /** Expected milliseconds per token around `depth`. Only when measured. */
  msPerToken(depth: number): number {
    const meanDepth = this.#depth / this.#weight;
    const meanCost = this.#cost / this.#weight;
    const variance = this.#depthSquared / this.#weight - meanDepth ** 2;
    const covariance = this.#depthCost / this.#weight - meanDepth * meanCost;
    const slope = variance > 1 ? Math.max(covariance / variance, 0) : 0;
    return Math.max(meanCost + slope * (depth - meanDepth), meanCost / 8, 1e-6);
  }
}
