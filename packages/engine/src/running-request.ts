/**
 * One request that owns a lane: its tokens, its sampler, its text, its clock readings. The engine's step loop alone drives it.
 *
 *   history   [0 ........ promptTokens.length ........ length)      prompt, then sampled tokens
 *   lane      [0 ... stored)                                        stored = lane length; the last sampled token is not in it
 *
 *   prefilling: stored < promptLength          decoding: stored = length - 1, the last token waits to be decoded
 */

import type { Random } from "@kvasir/kit";
import type { Placement } from "./lane-memory.ts";
import type { EngineRequest, EngineResult, FinishReason, TokenLogprob } from "./request.ts";
import { type SamplingScratch, TokenSampler } from "./sampling/token-sampler.ts";
import { DraftLength } from "./speculation/draft-length.ts";
import { PromptLookup } from "./speculation/prompt-lookup.ts";
import { TextAssembler } from "./text/text-assembler.ts";
import { TokenHistory } from "./token-history.ts";

export interface Admission extends Placement {
  readonly arrivedMs: number;
  readonly admittedMs: number;
}

/** What one sampled token did to the request. */
export interface SampledToken {
  readonly token: number;
  /** Text that may be sent now. */
  readonly text: string;
  readonly logprob: TokenLogprob | null;
  /** Set when this token ends the request. */
  readonly finished: FinishReason | null;
}

export interface Vocabulary {
  readonly vocabSize: number;
  readonly endTokens: ReadonlySet<number>;
  /** Buffers that all samplers of an engine share: one samples at a time. */
  readonly scratch: SamplingScratch;
  pieceOf(token: number): Uint8Array;
}

export class RunningRequest {
  readonly request: EngineRequest;
  readonly admission: Admission;
  readonly history: TokenHistory;
  readonly #vocabulary: Vocabulary;
  readonly #sampler: TokenSampler;
  readonly #text: TextAssembler;
  /** Most tokens this request may sample: its own limit or the lane's end. */
  readonly #outputLimit: number;
  /** Prompt tokens in the lane. */
  storedTokens: number;
  cancelled = false;
  paused = false;
  #stopText: string | null = null;
  #firstTokenMs: number | null = null;
  #lastTokenMs: number | null = null;
  #decodeSteps = 0;
  #decodeRows = 0;
  /** Prompt tokens this request computed; more than the suffix when a step was undone. */
  #computedTokens = 0;
  readonly #lookup: PromptLookup;
  readonly #draftLength: DraftLength;
  #draftedTokens = 0;
  #acceptedTokens = 0;

  /** @param draftTokens most tokens drafted a step; 0 switches speculation off */
  constructor(
    request: EngineRequest,
    admission: Admission,
    laneTokens: number,
    vocabulary: Vocabulary,
    random: Random,
    draftTokens: number,
  ) {
    this.request = request;
    this.admission = admission;
    this.history = new TokenHistory(request.promptTokens);
    this.#vocabulary = vocabulary;
    const neverEnd = request.ignoreEos
      ? [...vocabulary.endTokens].map((token) => [token, Number.NEGATIVE_INFINITY] as const)
      : [];
    const settings = { ...request.sampling, logitBias: [...request.sampling.logitBias, ...neverEnd] };
    this.#sampler = new TokenSampler(settings, vocabulary.vocabSize, random, vocabulary.scratch);
    this.#text = new TextAssembler(request.stop);
    this.#outputLimit = Math.min(request.maxTokens, laneTokens - request.promptTokens.length);
    this.storedTokens = admission.cachedTokens;
    this.#lookup = new PromptLookup(this.history);
    this.#draftLength = new DraftLength(draftTokens);
  }

  get lane(): number {
    return this.admission.lane;
  }

  get promptLength(): number {
    return this.request.promptTokens.length;
  }

  get outputTokens(): number {
    return this.history.length - this.promptLength;
  }

  get prefilling(): boolean {
    return this.storedTokens < this.promptLength;
  }

  get remainingPrompt(): number {
    return this.promptLength - this.storedTokens;
  }

  /** Whether the last prompt token's logits are needed. */
  get samples(): boolean {
    return this.#outputLimit > 0;
  }

  /** The sampled token that is not in the lane yet. */
  get pendingToken(): number {
    return this.history.at(this.history.length - 1);
  }

  /**
   * Guesses for the tokens after the pending one, as many as pay. Never more than may still be sampled.
   * @param stepMs expected milliseconds of the step with this many more rows
   */
  draft(mostTokens: number, stepMs: (moreRows: number) => number): number[] {
    const length = Math.min(this.#draftLength.choose(stepMs), mostTokens, this.#outputLimit - this.outputTokens - 1);
    return this.#lookup.draft(length);
  }

  recordDraft(draftedTokens: number, acceptedTokens: number): void {
    this.#draftLength.record(draftedTokens, acceptedTokens);
    this.#draftedTokens += draftedTokens;
    this.#acceptedTokens += acceptedTokens;
  }

  recordPrefill(tokens: number): void {
    this.storedTokens += tokens;
    this.#computedTokens += tokens;
  }

  /** @param storedTokens the pending token and the accepted drafts; @param batchRequests requests that decoded in this step */
  recordDecode(storedTokens: number, batchRequests: number): void {
    this.storedTokens += storedTokens;
    this.#decodeSteps++;
    this.#decodeRows += batchRequests;
  }

  /** Samples from a row of logits. @throws CodedError decode_failed when no logit is a number */
  sample(logits: Float32Array, nowMs: number): SampledToken {
    const token = this.#sampler.sample(logits, this.history);
    this.#firstTokenMs ??= nowMs;
    this.#lastTokenMs = nowMs;
    this.history.append(token);
    const ends = this.#vocabulary.endTokens.has(token) && !this.request.ignoreEos;
    const logprob = ends || this.request.topLogprobs === null ? null : this.#logprob(logits, token, this.request.topLogprobs);
    if (ends) return { token, text: this.#text.finish(), logprob, finished: "end" };
    const { text, stopText } = this.#text.push(this.#vocabulary.pieceOf(token));
    if (stopText !== null) {
      this.#stopText = stopText;
      return { token, text, logprob, finished: "stop" };
    }
    if (this.outputTokens < this.#outputLimit) return { token, text, logprob, finished: null };
    const finished = this.outputTokens === this.request.maxTokens ? "length" : "window";
    return { token, text: text + this.#text.finish(), logprob, finished };
  }

  /** Text held back so far, when the request ends without a sampled token. */
  flushText(): string {
    return this.#text.finish();
  }

  result(reason: FinishReason, nowMs: number): EngineResult {
    const { arrivedMs, admittedMs, restoreMs, cachedTokens, hostTokens, diskTokens, restoredBytes, possibleTokens } =
      this.admission;
    const { resetReason, divergedAt, lane } = this.admission;
    const firstMs = this.#firstTokenMs ?? nowMs;
    return {
      reason,
      stopText: this.#stopText,
      promptTokens: this.promptLength,
      cachedTokens,
      hostTokens,
      diskTokens,
      restoredBytes,
      possibleTokens,
      computedTokens: this.#computedTokens,
      outputTokens: this.outputTokens,
      resetReason,
      divergedAt,
      draftedTokens: this.#draftedTokens,
      acceptedTokens: this.#acceptedTokens,
      meanDecodeBatch: this.#decodeSteps === 0 ? 0 : this.#decodeRows / this.#decodeSteps,
      lane,
      timings: {
        queueMs: admittedMs - arrivedMs,
        restoreMs,
        prefillMs: firstMs - admittedMs - restoreMs,
        decodeMs: this.#lastTokenMs === null ? 0 : this.#lastTokenMs - firstMs,
      },
    };
  }

  #logprob(logits: Float32Array, token: number, top: number): TokenLogprob {
    const { logprob, top: alternatives } = this.#sampler.logprobs(logits, token, top);
    return {
      token,
      bytes: this.#vocabulary.pieceOf(token),
      logprob,
      top: alternatives.map((entry) => ({
        token: entry.token,
        bytes: this.#vocabulary.pieceOf(entry.token),
        logprob: entry.logprob,
      })),
    };
  }
}

/** The result of a request that never got a lane. */
export function unadmittedResult(request: EngineRequest, reason: FinishReason, queueMs: number): EngineResult {
  return {
    reason,
    stopText: null,
    promptTokens: request.promptTokens.length,
    cachedTokens: 0,
    hostTokens: 0,
    diskTokens: 0,
    restoredBytes: 0,
    possibleTokens: 0,
    computedTokens: 0,
    outputTokens: 0,
    resetReason: "none",
    divergedAt: null,
    draftedTokens: 0,
    acceptedTokens: 0,
    meanDecodeBatch: 0,
    lane: null,
    timings: { queueMs, restoreMs: 0, prefillMs: 0, decodeMs: 0 },
  };
}
