/** Rows of one decode call in plain typed arrays: filled by the step loop, read by a backend, reused every step. */

import { invariant } from "@kvasir/kit";

export class Batch {
  readonly tokens: Int32Array;
  readonly positions: Int32Array;
  readonly lanes: Int32Array;
  /** 1 where the row's logits are wanted. */
  readonly wantsLogits: Uint8Array;
  #rows = 0;
  #outputs = 0;

  /** @param capacity most rows */
  constructor(capacity: number) {
    this.tokens = new Int32Array(capacity);
    this.positions = new Int32Array(capacity);
    this.lanes = new Int32Array(capacity);
    this.wantsLogits = new Uint8Array(capacity);
  }

  get rows(): number {
    return this.#rows;
  }

  /** Rows whose logits are wanted. */
  get outputs(): number {
    return this.#outputs;
  }

  get room(): number {
    return this.tokens.length - this.#rows;
  }

  /** Appends a row and returns its index. */
  push(lane: number, position: number, token: number, wantsLogits: boolean): number {
    const row = this.#rows;
    invariant(row < this.tokens.length, `batch of ${this.tokens.length} rows is full`);
    this.tokens[row] = token;
    this.positions[row] = position;
    this.lanes[row] = lane;
    this.wantsLogits[row] = wantsLogits ? 1 : 0;
    this.#rows = row + 1;
    if (wantsLogits) this.#outputs++;
    return row;
  }

  clear(): void {
    this.#rows = 0;
    this.#outputs = 0;
  }
}
