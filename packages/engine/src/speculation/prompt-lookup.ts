/**
 * Drafts without a model: when the last tokens stood in the prompt or the output before, what followed them there is a guess
 * for what follows now (Saxena 2023, "prompt lookup decoding"). Good for edits, quotations and code that is repeated; wrong
 * guesses cost only their verification.
 *
 * The index maps every run of `KEY_TOKENS` tokens to the position behind its latest occurrence. It is built when the first
 * draft is asked for, and grows with the history.
 */

import type { TokenHistory } from "../token-history.ts";

/** Shorter keys match by chance, longer ones miss edits close by. */
const KEY_TOKENS = 3;

/** Open addressing over position numbers: the key of a slot is read back from the history. */
class KeyIndex {
  #slots = new Int32Array(1024);
  #used = 0;

  /** The position stored for the key before `position`, which replaces it; -1 when there was none. */
  replace(history: TokenHistory, position: number): number {
    if (this.#used * 2 >= this.#slots.length) this.#grow(history);
    const slot = this.#find(history, position);
    const before = (this.#slots[slot] as number) - 1;
    if (before < 0) this.#used++;
    this.#slots[slot] = position + 1;
    return before;
  }

  /** The slot that holds the key which ends before `position`, or the empty one where it belongs. */
  #find(history: TokenHistory, position: number): number {
    const mask = this.#slots.length - 1;
    let slot = hashBefore(history, position) & mask;
    for (;;) {
      const stored = (this.#slots[slot] as number) - 1;
      if (stored < 0 || sameKey(history, stored, position)) return slot;
      slot = (slot + 1) & mask;
    }
  }

  #grow(history: TokenHistory): void {
    const old = this.#slots;
    this.#slots = new Int32Array(old.length * 2);
    for (const entry of old) if (entry > 0) this.#slots[this.#find(history, entry - 1)] = entry;
  }
}

function hashBefore(history: TokenHistory, position: number): number {
  let hash = 0;
  for (let i = position - KEY_TOKENS; i < position; i++) hash = Math.imul(hash ^ history.at(i), 0x9e3779b1) + 0x85ebca6b;
  return (hash ^ (hash >>> 15)) >>> 0;
}

function sameKey(history: TokenHistory, left: number, right: number): boolean {
  for (let back = 1; back <= KEY_TOKENS; back++) if (history.at(left - back) !== history.at(right - back)) return false;
  return true;
}

export class PromptLookup {
  readonly #history: TokenHistory;
  readonly #index = new KeyIndex();
  /** Keys that end before positions [KEY_TOKENS, #indexed) are in the index. */
  #indexed = KEY_TOKENS;

  constructor(history: TokenHistory) {
    this.#history = history;
  }

  /** Up to `mostTokens` tokens that followed the current ending when it was seen last; empty when it is new. */
  draft(mostTokens: number): number[] {
    const { length } = this.#history;
    if (mostTokens <= 0 || length < KEY_TOKENS) return [];
    let earlier = -1;
    for (let position = this.#indexed; position <= length; position++) earlier = this.#index.replace(this.#history, position);
    this.#indexed = length + 1;
    if (earlier < 0) return [];
    const tokens: number[] = [];
    // A repetition that runs into its own end goes on with what was drafted.
    for (let i = 0; i < mostTokens; i++) {
      const source = earlier + i;
      tokens.push(source < length ? this.#history.at(source) : (tokens[source - length] as number));
    }
    return tokens;
  }
}
