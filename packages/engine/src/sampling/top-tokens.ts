/**
 * The `capacity` largest logits of a row by partial selection: a min-heap whose root is the weakest token kept, so that almost
 * every token of a large vocabulary costs one comparison. Among equal logits the lower token id is kept.
 */

import { invariant } from "@kvasir/kit";

export class TopTokens {
  readonly #ids: Int32Array;
  readonly #logits: Float32Array;
  #size = 0;

  constructor(capacity: number) {
    invariant(capacity > 0, `cannot keep the ${capacity} largest logits`);
    this.#ids = new Int32Array(capacity);
    this.#logits = new Float32Array(capacity);
  }

  /** Kept tokens, in no particular order: valid until the next `select`. */
  get ids(): Int32Array {
    return this.#ids.subarray(0, this.#size);
  }

  /** Logits of `ids`, in the same order. */
  get logits(): Float32Array {
    return this.#logits.subarray(0, this.#size);
  }

  /** Replaces the kept tokens by the largest of `logits`. NaN and -Infinity are never kept. */
  select(logits: Float32Array): void {
    const capacity = this.#ids.length;
    this.#size = 0;
    let token = 0;
    for (; token < logits.length && this.#size < capacity; token++) {
      const logit = logits[token] as number;
      if (logit > Number.NEGATIVE_INFINITY) this.#append(token, logit);
    }
    let weakest = this.#logits[0] as number;
    for (; token < logits.length; token++) {
      const logit = logits[token] as number;
      if (logit > weakest) {
        this.#sink(token, logit);
        weakest = this.#logits[0] as number;
      }
    }
  }

  /** Kept tokens, the most likely first. */
  descending(): Array<{ token: number; logit: number }> {
    return Array.from(this.ids, (token, slot) => ({ token, logit: this.#logits[slot] as number })).sort((left, right) =>
      right.logit === left.logit ? left.token - right.token : right.logit > left.logit ? 1 : -1,
    );
  }

  /** Whether a token comes out of the heap before the one in `slot`: the smaller logit, the higher id among equals. */
  #isWeaker(token: number, logit: number, slot: number): boolean {
    const other = this.#logits[slot] as number;
    return logit < other || (logit === other && token > (this.#ids[slot] as number));
  }

  #put(slot: number, token: number, logit: number): void {
    this.#ids[slot] = token;
    this.#logits[slot] = logit;
  }

  #move(from: number, to: number): void {
    this.#put(to, this.#ids[from] as number, this.#logits[from] as number);
  }

  #append(token: number, logit: number): void {
    let slot = this.#size++;
    while (slot > 0) {
      const parent = (slot - 1) >> 1;
      if (!this.#isWeaker(token, logit, parent)) break;
      this.#move(parent, slot);
      slot = parent;
    }
    this.#put(slot, token, logit);
  }

  /** Replaces the root. */
  #sink(token: number, logit: number): void {
    let slot = 0;
    for (;;) {
      let child = 2 * slot + 1;
      if (child >= this.#size) break;
      const right = child + 1;
      if (right < this.#size && this.#isWeaker(this.#ids[right] as number, this.#logits[right] as number, child)) child = right;
      if (this.#isWeaker(token, logit, child)) break;
      this.#move(child, slot);
      slot = child;
    }
    this.#put(slot, token, logit);
  }
}
