/**
 * logit_bias and the three penalties, applied to a private copy of a row. One per request: the counts follow the request's
 * history and grow by the tokens that were appended since the last call.
 *
 *   history   [0 ... promptLength ... windowStart ... length)
 *              frequency, presence: [promptLength, length)
 *              repeat:              [windowStart, length), windowStart = length − repeatLastN (0 for −1)
 *
 * Order: bias, repeat penalty, then frequency and presence, as llama.cpp's `penalties` sampler computes them:
 * l ← l / r for l > 0, l × r otherwise; then l ← l − count × frequency − (count > 0) × presence.
 */

import { invariant } from "@kvasir/kit";
import type { SamplingSettings } from "../request.ts";
import type { TokenHistory } from "../token-history.ts";

class TokenCounts {
  readonly counts = new Map<number, number>();

  add(token: number): void {
    this.counts.set(token, (this.counts.get(token) ?? 0) + 1);
  }

  remove(token: number): void {
    const left = (this.counts.get(token) ?? 0) - 1;
    if (left > 0) this.counts.set(token, left);
    else this.counts.delete(token);
  }
}

export class LogitAdjustments {
  readonly #settings: SamplingSettings;
  readonly #repeats: boolean;
  readonly #counts: boolean;
  readonly #recent = new TokenCounts();
  readonly #output = new TokenCounts();
  /** Tokens [0, #read) of the history are in the counts. */
  #read = 0;
  #windowStart = 0;

  constructor(settings: SamplingSettings) {
    this.#settings = settings;
    this.#repeats = settings.repeatPenalty !== 1 && settings.repeatLastN !== 0;
    this.#counts = settings.frequencyPenalty !== 0 || settings.presencePenalty !== 0;
  }

  /** False when a row would come out unchanged whatever the history. */
  get isActive(): boolean {
    return this.#repeats || this.#counts || this.#settings.logitBias.length > 0;
  }

  /** Changes `row` in place. `history` is always the same request's, never shorter than at the call before. */
  apply(row: Float32Array, history: TokenHistory): void {
    this.#follow(history);
    const { logitBias, repeatPenalty, frequencyPenalty, presencePenalty } = this.#settings;
    for (const [token, bias] of logitBias) {
      if (token >= 0 && token < row.length) row[token] = (row[token] as number) + bias;
    }
    for (const token of this.#recent.counts.keys()) {
      const logit = row[token];
      if (logit !== undefined) row[token] = logit > 0 ? logit / repeatPenalty : logit * repeatPenalty;
    }
    for (const [token, count] of this.#output.counts) {
      const logit = row[token];
      if (logit !== undefined) row[token] = logit - count * frequencyPenalty - presencePenalty;
    }
  }

  #follow(history: TokenHistory): void {
    invariant(history.length >= this.#read, `the history shrank from ${this.#read} to ${history.length} tokens`);
    const { repeatLastN } = this.#settings;
    const windowStart = repeatLastN < 0 ? 0 : Math.max(history.length - repeatLastN, 0);
    for (let index = this.#read; index < history.length; index++) {
      const token = history.at(index);
      if (this.#repeats && index >= windowStart) this.#recent.add(token);
      if (this.#counts && index >= history.promptLength) this.#output.add(token);
    }
    if (this.#repeats) {
      // Tokens read before that the window has moved past; those read just now were added only inside it.
      const leavingEnd = Math.min(windowStart, this.#read);
      for (let index = this.#windowStart; index < leavingEnd; index++) this.#recent.remove(history.at(index));
    }
    this.#windowStart = windowStart;
    this.#read = history.length;
  }
}
