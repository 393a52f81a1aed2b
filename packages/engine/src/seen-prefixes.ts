/**
 * Which prefixes were ever computed, page by page, without their data: what an infinite cache would have reused. A bounded set
 * of 53-bit keys; the oldest are forgotten, so the figure is a lower bound after a very long life.
 */

import { PAGE_TOKENS } from "./store/page.ts";

const MOST_KEYS = 1 << 20;

export class SeenPrefixes {
  readonly #keys = new Set<number>();

  /** Leading tokens of `tokens`, in whole pages, that were computed before. */
  covered(namespace: string, tokens: Int32Array): number {
    let pages = 0;
    for (const key of pageKeys(namespace, tokens)) {
      if (!this.#keys.has(key)) break;
      pages++;
    }
    return pages * PAGE_TOKENS;
  }

  add(namespace: string, tokens: Int32Array): void {
    for (const key of pageKeys(namespace, tokens)) {
      this.#keys.delete(key);
      this.#keys.add(key);
    }
    for (const oldest of this.#keys) {
      if (this.#keys.size <= MOST_KEYS) break;
      this.#keys.delete(oldest);
    }
  }
}

/** A key per whole page, each of all tokens up to its end. */
function* pageKeys(namespace: string, tokens: Int32Array): Generator<number> {
  let high = 0x9e3779b9;
  let low = 0x85ebca6b;
  for (let i = 0; i < namespace.length; i++) {
    high = Math.imul(high ^ namespace.charCodeAt(i), 0x01000193);
    low = Math.imul(low + namespace.charCodeAt(i), 0xcc9e2d51) ^ (low >>> 13);
  }
  for (let index = 0; index < tokens.length; index++) {
    const token = tokens[index] as number;
    high = Math.imul(high ^ token, 0x01000193) ^ (high >>> 15);
    low = Math.imul(low + token, 0xcc9e2d51) ^ (low >>> 13);
    if ((index + 1) % PAGE_TOKENS === 0) yield (high >>> 0) * 2 ** 21 + (low & 0x1fffff);
  }
}
