/**
 * The tokens of one request, prompt first, then output. Owned by the request; the engine appends, samplers read.
 *
 *   [0 ........ promptLength ........ length)
 *     prompt    | output, oldest first
 */

import { invariant } from "@kvasir/kit";

const SPARE_TOKENS = 256;

export class TokenHistory {
  readonly promptLength: number;
  #tokens: Int32Array;
  #length: number;

  /** @param prompt is copied */
  constructor(prompt: Int32Array) {
    this.promptLength = prompt.length;
    this.#tokens = new Int32Array(prompt.length + SPARE_TOKENS);
    this.#tokens.set(prompt);
    this.#length = prompt.length;
  }

  /** Prompt and output tokens. */
  get length(): number {
    return this.#length;
  }

  get outputLength(): number {
    return this.#length - this.promptLength;
  }

  at(index: number): number {
    const token = index < this.#length ? this.#tokens[index] : undefined;
    invariant(token !== undefined, `token ${index} is outside a history of ${this.#length}`);
    return token;
  }

  /** Amortized O(1). */
  append(token: number): void {
    if (this.#length === this.#tokens.length) {
      const grown = new Int32Array(this.#tokens.length * 2);
      grown.set(this.#tokens);
      this.#tokens = grown;
    }
    this.#tokens[this.#length++] = token;
  }

  /** Tokens [start, end) without a copy; valid until the next `append`. */
  view(start = 0, end = this.#length): Int32Array {
    invariant(
      start >= 0 && start <= end && end <= this.#length,
      `tokens ${start}..${end} are outside a history of ${this.#length}`,
    );
    return this.#tokens.subarray(start, end);
  }
}
