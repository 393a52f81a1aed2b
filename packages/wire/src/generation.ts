/**
 * The wire-independent request and its events. Every protocol is parsed into a `GenerationRequest` and rendered from
 * `GenerationEvent`s; what answers is a `Generator` (the embedded engine now, an upstream server later).
 */

import type { CodedErrorRecord, RequestId } from "@kvasir/kit";

/** A chat message as chat templates read it (the OpenAI shape). */
export interface ChatMessage {
  readonly role: string;
  readonly content: string | null | ReadonlyArray<{ readonly type: "text"; readonly text: string }>;
  readonly name?: string;
  readonly reasoning_content?: string;
  readonly tool_calls?: ReadonlyArray<{
    readonly id: string;
    readonly type: "function";
    readonly function: { readonly name: string; readonly arguments: string };
  }>;
  readonly tool_call_id?: string;
}

export type Prompt =
  | {
      readonly kind: "chat";
      readonly messages: readonly ChatMessage[];
      readonly tools?: readonly unknown[];
      readonly templateArguments?: Readonly<Record<string, unknown>>;
    }
  /** `addSpecial`: BOS in front where the model wants it. `parseSpecial`: control token texts become control tokens. */
  | { readonly kind: "text"; readonly text: string; readonly addSpecial: boolean; readonly parseSpecial: boolean }
  | { readonly kind: "tokens"; readonly tokens: readonly number[] };

/** What the client set; the server fills the rest from its defaults in one place. */
export interface SamplingOptions {
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly typicalP?: number;
  readonly repeatPenalty?: number;
  readonly repeatLastN?: number;
  readonly frequencyPenalty?: number;
  readonly presencePenalty?: number;
  readonly logitBias?: ReadonlyArray<readonly [token: number, bias: number]>;
  readonly seed?: number;
}

export interface GenerationRequest {
  readonly id: RequestId;
  readonly protocol: "openai-chat" | "openai-completions";
  /** The name the client used. */
  readonly model: string;
  /** One prompt a batch entry: `/v1/completions` takes several, chat has one. */
  readonly prompts: readonly Prompt[];
  /** Choices per prompt. */
  readonly choices: number;
  /** undefined: up to the end of the window. */
  readonly maxTokens?: number;
  readonly sampling: SamplingOptions;
  readonly stop: readonly string[];
  readonly ignoreEos: boolean;
  /** Requests with different salts never share KV; null is a salt of its own. */
  readonly cacheSalt: string | null;
  /** null: none; 0..20 alternatives. */
  readonly topLogprobs: number | null;
}

export interface Usage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly outputTokens: number;
}

/** Phases in milliseconds, all from the engine's clock. */
export interface PhaseTimings {
  readonly queueMs: number;
  readonly restoreMs: number;
  readonly prefillMs: number;
  readonly decodeMs: number;
}

/** What one choice cost, as the engine counted it. Also told of a choice that failed or was cancelled on its way. */
export interface ChoiceReport {
  readonly choice: number;
  readonly promptTokens: number;
  /** Prompt tokens that were not computed because their KV existed. */
  readonly cachedTokens: number;
  /** Of the cached ones: copied from host memory, and read back from disk. The rest was on the device. */
  readonly hostTokens: number;
  readonly diskTokens: number;
  readonly restoredBytes: number;
  /** Prompt tokens that an infinite cache would have reused. */
  readonly possibleTokens: number;
  readonly computedTokens: number;
  readonly outputTokens: number;
  /** Why tokens were computed again that were computed before; "none" when they were not. */
  readonly resetReason: string;
  /** The first prompt token that differs from what was held, for a rewritten prompt. */
  readonly divergedAt: number | null;
  /** Tokens that speculation guessed, and how many of them were right. */
  readonly draftedTokens: number;
  readonly acceptedTokens: number;
  readonly meanDecodeBatch: number;
  readonly lane: number | null;
  readonly timings: PhaseTimings;
}

export interface OutputLogprob {
  readonly token: string;
  readonly bytes: readonly number[];
  readonly logprob: number;
  readonly top: ReadonlyArray<{ readonly token: string; readonly bytes: readonly number[]; readonly logprob: number }>;
}

/**
 * `choice` = prompt index × choices per prompt + choice. Every choice is `queued` or `admitted` first, so that who waits for
 * the acceptance of a request knows when it is complete.
 */
export type GenerationEvent =
  | { readonly kind: "queued"; readonly choice: number; readonly position: number }
  | {
      readonly kind: "admitted";
      readonly choice: number;
      readonly promptTokens: number;
      readonly cachedTokens: number;
      readonly queueMs: number;
    }
  | { readonly kind: "prefill"; readonly choice: number; readonly processedTokens: number; readonly totalTokens: number }
  | {
      readonly kind: "output";
      readonly choice: number;
      readonly text: string;
      readonly tokens: readonly number[];
      readonly logprobs?: readonly OutputLogprob[];
    }
  | {
      readonly kind: "choice-finished";
      readonly choice: number;
      readonly reason: "stop" | "length";
      readonly stopText: string | null;
    }
  /** Terminal, exactly one of the three. Reports are in the order in which the choices ended. */
  | { readonly kind: "finished"; readonly usage: Usage; readonly reports: readonly ChoiceReport[] }
  | { readonly kind: "failed"; readonly error: CodedErrorRecord; readonly reports: readonly ChoiceReport[] }
  /** The reader has left; what had been computed stays counted. */
  | { readonly kind: "cancelled"; readonly reports: readonly ChoiceReport[] };
