/**
 * What the engine is asked and what it answers: tokens and numbers only, no JSON, no templates, no protocol.
 * All of it is plain data that crosses a process border by structured clone.
 */

import type { CodedErrorRecord, RequestId } from "@kvasir/kit";
import type { StoreStatus } from "./store/store-status.ts";

/** Settings of one generation, fully resolved: no field is optional, so no default hides in the step loop. */
export interface SamplingSettings {
  /** 0 means greedy: the most likely token, no randomness. */
  readonly temperature: number;
  /** Keep the `topK` most likely tokens; 0 keeps all. */
  readonly topK: number;
  /** Keep the smallest set whose probability reaches `topP`; 1 keeps all. */
  readonly topP: number;
  /** Keep tokens at least `minP` times as likely as the most likely; 0 keeps all. */
  readonly minP: number;
  /** Locally typical sampling (Meister et al. 2022); 1 switches it off. */
  readonly typicalP: number;
  /** Divides (or multiplies, when negative) the logits of tokens seen in the last `repeatLastN`; 1 switches it off. */
  readonly repeatPenalty: number;
  /** Tokens of prompt and output that `repeatPenalty` looks back on; -1 means all, 0 none. */
  readonly repeatLastN: number;
  /** Subtracted from a logit once per occurrence in the output so far (OpenAI). */
  readonly frequencyPenalty: number;
  /** Subtracted from a logit once when the token occurs in the output so far (OpenAI). */
  readonly presencePenalty: number;
  /** Added to logits by token id. */
  readonly logitBias: ReadonlyArray<readonly [token: number, bias: number]>;
  /** Same seed, same prompt, same batch layout: same output. */
  readonly seed: number;
}

export interface EngineRequest {
  readonly id: RequestId;
  /** Requests of different namespaces never share KV, in lanes or in the store. */
  readonly namespace: string;
  /** At least one token, at most `laneTokens - 1` unless `maxTokens` is 0. */
  readonly promptTokens: Int32Array;
  /** Most tokens to generate. 0 prefills only. The lane's end may come first. */
  readonly maxTokens: number;
  readonly sampling: SamplingSettings;
  /** Texts that end the generation; never part of the output. */
  readonly stop: readonly string[];
  /** Keep going past end-of-generation tokens. */
  readonly ignoreEos: boolean;
  /** null: no logprobs. 0..20: logprob of each token and of that many alternatives. */
  readonly topLogprobs: number | null;
  /** Milliseconds that the request may wait for a lane. */
  readonly pendingTimeoutMs: number;
}

export type FinishReason =
  /** An end-of-generation token. */
  | "end"
  /** One of the request's stop texts. */
  | "stop"
  /** `maxTokens` reached. */
  | "length"
  /** The lane is full. */
  | "window"
  | "cancelled";

export interface TokenLogprob {
  readonly token: number;
  readonly bytes: Uint8Array;
  /** Natural logarithm of the probability under the model, before any sampling setting. */
  readonly logprob: number;
  readonly top: ReadonlyArray<{ readonly token: number; readonly bytes: Uint8Array; readonly logprob: number }>;
}

/** Why a request's prompt was recomputed although it, or most of it, was computed before. */
export type ResetReason = "none" | "cold" | "rewritten" | "evicted" | "capacity";

/** Phases on the engine's clock, in milliseconds. They never overlap and add up to the request's time in the engine. */
export interface EngineTimings {
  /** From arrival to the moment a lane is taken. */
  readonly queueMs: number;
  /** Copying stored state into the lane. */
  readonly restoreMs: number;
  /** From the lane to the first sampled token (or the end of the prompt, when `maxTokens` is 0). */
  readonly prefillMs: number;
  /** From the first sampled token to the last. */
  readonly decodeMs: number;
}

export interface EngineResult {
  readonly reason: FinishReason;
  /** The stop text that matched, for `reason` "stop". */
  readonly stopText: string | null;
  readonly promptTokens: number;
  /** Prompt tokens that were not computed because the lane held them. */
  readonly cachedTokens: number;
  /** Of the cached ones: copied from host memory, and read back from disk. The rest was on the device. */
  readonly hostTokens: number;
  readonly diskTokens: number;
  /** Bytes copied into the lane. */
  readonly restoredBytes: number;
  /** Prompt tokens that an infinite cache would have reused. */
  readonly possibleTokens: number;
  /** Prompt tokens computed for this request. */
  readonly computedTokens: number;
  /** Sampled tokens, the end token included. */
  readonly outputTokens: number;
  readonly resetReason: ResetReason;
  /** For "rewritten": the first prompt token that differs from what the lane held. */
  readonly divergedAt: number | null;
  /** Tokens guessed by speculation, and how many of them were right. */
  readonly draftedTokens: number;
  readonly acceptedTokens: number;
  /** Mean number of requests that decoded together with this one, itself included. */
  readonly meanDecodeBatch: number;
  readonly lane: number | null;
  readonly timings: EngineTimings;
}

export type EngineEvent =
  /** The request waits; `position` 1 is the next to be admitted. Sent at arrival when no lane is free. */
  | { readonly kind: "queued"; readonly id: RequestId; readonly position: number }
  | {
      readonly kind: "admitted";
      readonly id: RequestId;
      readonly lane: number;
      readonly cachedTokens: number;
      readonly queueMs: number;
    }
  /** Prompt tokens in the lane so far, cached ones included. After every chunk. */
  | { readonly kind: "prefill"; readonly id: RequestId; readonly processedTokens: number; readonly totalTokens: number }
  /** Text may lag behind tokens: bytes of an unfinished character and a possible stop text are held back. */
  | {
      readonly kind: "output";
      readonly id: RequestId;
      readonly text: string;
      readonly tokens: readonly number[];
      readonly logprobs?: readonly TokenLogprob[];
    }
  /** Terminal. Exactly one of `finished` and `failed` per request, nothing after it. */
  | { readonly kind: "finished"; readonly id: RequestId; readonly result: EngineResult }
  | { readonly kind: "failed"; readonly id: RequestId; readonly error: CodedErrorRecord; readonly result: EngineResult };

export type LaneState = "empty" | "idle" | "running";

/** A snapshot between two steps. Counters only grow while the engine process lives. */
export interface EngineStatus {
  readonly lanes: ReadonlyArray<{ readonly state: LaneState; readonly tokens: number }>;
  /** null: this model's memory cannot be cut into pages. */
  readonly store: StoreStatus | null;
  readonly waiting: number;
  readonly prefilling: number;
  readonly decoding: number;
  readonly counters: {
    readonly steps: number;
    /** Sum over steps of the rows that decoded; divided by `decodeSteps` it is the mean batch. */
    readonly decodeRows: number;
    readonly decodeSteps: number;
    readonly prefillTokens: number;
    readonly cachedTokens: number;
    readonly outputTokens: number;
    readonly draftedTokens: number;
    readonly acceptedTokens: number;
    readonly stepSeconds: number;
  };
}
