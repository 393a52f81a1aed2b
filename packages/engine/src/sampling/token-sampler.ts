/**
 * Chooses the next token of one request from a row of logits. The row belongs to the backend and is never changed.
 *
 * Order, as llama.cpp's default chain has it:
 *   logit_bias → repeat penalty → frequency and presence penalty → (temperature 0: the most likely token)
 *   → top_k → typical → top_p → min_p → temperature → draw
 *
 * A greedy choice takes no random number, a draw exactly one: the same seed over the same rows gives the same tokens.
 */

import { invariant, type Random } from "@kvasir/kit";
import type { SamplingSettings } from "../request.ts";
import type { TokenHistory } from "../token-history.ts";
import { Candidates } from "./candidates.ts";
import { LogitAdjustments } from "./logit-adjustments.ts";
import { mostLikely } from "./logit-scan.ts";
import { logprobsOf, type RowLogprobs } from "./logprobs.ts";
import { TopTokens } from "./top-tokens.ts";

/** Buffers that samplers may share, because a choice is made in one synchronous call. They grow to what was needed. */
export class SamplingScratch {
  readonly candidates = new Candidates();
  #row = new Float32Array(0);

  /** A copy of `logits` that may be changed, valid until the next call. */
  copyOf(logits: Float32Array): Float32Array {
    if (this.#row.length !== logits.length) this.#row = new Float32Array(logits.length);
    this.#row.set(logits);
    return this.#row;
  }
}

export class TokenSampler {
  readonly #settings: SamplingSettings;
  readonly #vocabSize: number;
  readonly #random: Random;
  readonly #scratch: SamplingScratch;
  readonly #adjustments: LogitAdjustments;
  readonly #top: TopTokens | null;

  /**
   * @param random this request's own generator, seeded from its seed
   * @param scratch pass one to all samplers of an engine to save memory: without top_k a set of candidates takes 24 bytes a token
   */
  constructor(settings: SamplingSettings, vocabSize: number, random: Random, scratch = new SamplingScratch()) {
    this.#settings = settings;
    this.#vocabSize = vocabSize;
    this.#random = random;
    this.#scratch = scratch;
    this.#adjustments = new LogitAdjustments(settings);
    const { temperature, topK } = settings;
    this.#top = temperature > 0 && topK > 0 && topK < vocabSize ? new TopTokens(topK) : null;
  }

  /**
   * @param logits one float per token of the vocabulary
   * @param history this request's prompt and output so far; penalties read it
   * @throws CodedError decode_failed when every logit is NaN or -Infinity
   */
  sample(logits: Float32Array, history: TokenHistory): number {
    invariant(logits.length === this.#vocabSize, `a row has ${logits.length} logits for a vocabulary of ${this.#vocabSize}`);
    const row = this.#adjusted(logits, history);
    const { temperature, typicalP, topP, minP } = this.#settings;
    if (temperature <= 0) return mostLikely(row);
    const { candidates } = this.#scratch;
    this.#top?.select(row);
    if (this.#top && this.#top.ids.length > 0) candidates.loadTop(row, this.#top, temperature);
    else candidates.loadAll(row, row[mostLikely(row)] as number, temperature);
    if (typicalP < 1) candidates.keepTypical(typicalP);
    if (topP < 1) candidates.keepNucleus(topP);
    if (minP > 0) candidates.keepLikely(minP);
    return candidates.draw(temperature, this.#random);
  }

  /**
   * Log-probabilities under the model, before any setting: of `token` and of the `topCount` most likely tokens.
   * @throws CodedError decode_failed when no logit is usable
   */
  logprobs(logits: Float32Array, token: number, topCount: number): RowLogprobs {
    return logprobsOf(logits, token, topCount);
  }

  #adjusted(logits: Float32Array, history: TokenHistory): Float32Array {
    if (!this.#adjustments.isActive) return logits;
    const row = this.#scratch.copyOf(logits);
    this.#adjustments.apply(row, history);
    return row;
  }
}
