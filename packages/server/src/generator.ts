/**
 * What a route talks to. The embedded engine is one implementation; an upstream server can be another: admission, log, metrics
 * and routes are the same for both.
 */

import type { BackendFacts, EngineStatus } from "@kvasir/engine";
import type { GenerationEvent, GenerationRequest } from "@kvasir/wire";

export type GeneratorState =
  /** Loading for the first time. */
  | "starting"
  /** The first token is possible. */
  | "ready"
  /** Was ready; comes back by itself. */
  | "restarting"
  /** Could not start and does not try again. */
  | "failed"
  | "stopping";

export interface ModelInfo {
  /** The name in `/v1/models` and in responses. */
  readonly id: string;
  /** Other names that requests may use. */
  readonly aliases: readonly string[];
  /** Seconds since the Unix epoch: the model file's time. */
  readonly createdSeconds: number;
  readonly ownedBy: string;
  /** Changes when the same seed may give another text: model file, engine build, KV dtype. */
  readonly fingerprint: string;
  /** Context that the model was trained for, in tokens; null when the file does not say. */
  readonly trainedContextTokens: number | null;
  readonly inputModalities: readonly string[];
  readonly outputModalities: readonly string[];
}

export interface GeneratorCapacity {
  readonly maxConcurrency: number;
  readonly maxPendingRequests: number;
}

export interface Generator {
  readonly model: ModelInfo;
  readonly capacity: GeneratorCapacity;
  readonly state: GeneratorState;
  /** Share of the model that is loaded, 0 to 1. */
  readonly loadProgress: number;
  /** Times that the engine was started again. */
  readonly restarts: number;
  /** Null until the engine has been ready once. */
  readonly facts: BackendFacts | null;

  /**
   * The events of one request, ending with a terminal one. What can go wrong is a `failed` event; what is thrown is a bug.
   *
   * The reader sets the pace: asking for the next event says that the one before has been taken, and a request whose reader
   * does not ask is held after a while. Leaving the loop early, or `signal`, cancels. A signal whose reason is a `CodedError`
   * fails the request with it; after any other reason the last event is `cancelled`.
   */
  generate(request: GenerationRequest, signal: AbortSignal): AsyncGenerator<GenerationEvent, void, undefined>;

  /** @throws CodedError engine_starting and the like when there is no vocabulary */
  tokenize(text: string, options: { readonly addSpecial: boolean; readonly parseSpecial: boolean }): Promise<readonly number[]>;

  /** Bytes of each token's text; control tokens as their text. @throws CodedError invalid_value for a token outside the vocabulary */
  pieces(tokens: readonly number[]): readonly Uint8Array[];

  /** @throws CodedError when the engine is not there */
  status(): Promise<EngineStatus>;
}
