/**
 * The Generator over our own engine: template and vocabulary here, lanes and kernels in the engine process.
 *
 *   request → model known? → prompts to tokens → fits the window? → engine requests, one a choice → events
 *
 * Everything that can be refused is refused before the engine hears of it.
 */

import type { BackendFacts, EngineRequest, EngineStatus, Tokenizer } from "@kvasir/engine";
import { CodedError, formatCount, type RequestId, toErrorRecord } from "@kvasir/kit";
import type { ChatTemplate } from "@kvasir/models";
import type { GenerationEvent, GenerationRequest } from "@kvasir/wire";
import type { EngineSupervisor } from "./engine-supervisor.ts";
import { GenerationRun } from "./generation-run.ts";
import type { Generator, GeneratorCapacity, GeneratorState, ModelInfo } from "./generator.ts";
import { PromptTokenizer } from "./prompt-tokenizer.ts";
import { resolveSampling, type SamplingDefaults } from "./sampling-defaults.ts";
import { WaitingLine } from "./waiting-line.ts";

export interface EmbeddedGeneratorParts {
  readonly model: ModelInfo;
  readonly engine: EngineSupervisor;
  readonly tokenizer: Tokenizer;
  readonly template: Pick<ChatTemplate, "render">;
  readonly samplingDefaults: SamplingDefaults;
  readonly capacity: GeneratorCapacity;
  /** Milliseconds that a request may wait for a lane. */
  readonly pendingTimeoutMs: number;
  /** A seed for a request that has none: an integer of 0 to 2^32 - 1. */
  readonly newSeed: () => number;
}

export class EmbeddedGenerator implements Generator {
  readonly model: ModelInfo;
  readonly capacity: GeneratorCapacity;
  readonly #parts: EmbeddedGeneratorParts;
  readonly #prompts: PromptTokenizer;
  readonly #line = new WaitingLine();

  constructor(parts: EmbeddedGeneratorParts) {
    this.model = parts.model;
    this.capacity = parts.capacity;
    this.#parts = parts;
    this.#prompts = new PromptTokenizer(parts.tokenizer, parts.template);
  }

  get state(): GeneratorState {
    return this.#parts.engine.state;
  }

  get loadProgress(): number {
    return this.#parts.engine.loadProgress;
  }

  get restarts(): number {
    return this.#parts.engine.restarts;
  }

  get facts(): BackendFacts | null {
    return this.#parts.engine.facts;
  }

  async *generate(request: GenerationRequest, signal: AbortSignal): AsyncGenerator<GenerationEvent, void, undefined> {
    let run: GenerationRun;
    try {
      const requests = await this.#engineRequests(request);
      const client = await this.#parts.engine.acquire(signal);
      run = new GenerationRun(client, requests, request.choices, this.#line);
    } catch (error) {
      if (error instanceof CodedError) yield { kind: "failed", error: toErrorRecord(error), reports: [] };
      else if (signal.aborted) yield { kind: "cancelled", reports: [] };
      else throw error;
      return;
    }
    yield* run.events(signal);
  }

  async tokenize(
    text: string,
    options: { readonly addSpecial: boolean; readonly parseSpecial: boolean },
  ): Promise<readonly number[]> {
    const tokens = await this.#prompts.tokensOf({ kind: "text", text, ...options }, "content");
    return [...tokens];
  }

  pieces(tokens: readonly number[]): readonly Uint8Array[] {
    this.#prompts.check(tokens, "tokens");
    return tokens.map((token) => this.#parts.tokenizer.pieceOf(token, { special: true }));
  }

  async status(): Promise<EngineStatus> {
    const { client } = this.#parts.engine;
    if (!client) throw new CodedError("engine_unavailable", "The engine is not running; there is no status.");
    return client.status();
  }

  async #engineRequests(request: GenerationRequest): Promise<EngineRequest[]> {
    this.#checkModel(request.model);
    this.#checkCount(request);
    const { facts } = this;
    const { refusal } = this.#parts.engine;
    if (refusal || !facts) throw refusal ?? new CodedError("engine_starting", "The model is loading. Try again in a moment.");
    this.#checkLogitBias(request);
    const windowTokens = facts.laneTokens;
    const { maxTokens = windowTokens } = request;
    if (maxTokens > windowTokens) {
      throw new CodedError(
        "max_tokens_exceeds_window",
        `max_tokens is ${formatCount(maxTokens)}; this model's maximum context length is ${windowTokens} tokens, prompt included. Ask for less, or leave max_tokens out to use what is left.`,
        { param: "max_tokens" },
      );
    }
    const isChat = request.protocol === "openai-chat";
    const requests: EngineRequest[] = [];
    const seed = request.sampling.seed ?? this.#parts.newSeed();
    const sampling = resolveSampling(request.sampling, this.#parts.samplingDefaults, seed);
    for (const [index, prompt] of request.prompts.entries()) {
      const param = isChat ? "messages" : request.prompts.length > 1 ? `prompt[${index}]` : "prompt";
      const promptTokens = await this.#prompts.tokensOf(prompt, param);
      checkFits(promptTokens.length, maxTokens, windowTokens, param);
      for (let choice = 0; choice < request.choices; choice++) {
        requests.push({
          id: `${request.id}/${requests.length}` as RequestId,
          namespace: request.cacheSalt === null ? "" : `salt:${request.cacheSalt}`,
          promptTokens,
          maxTokens,
          sampling: { ...sampling, seed: sampling.seed + choice },
          stop: request.stop,
          ignoreEos: request.ignoreEos,
          topLogprobs: request.topLogprobs,
          pendingTimeoutMs: this.#parts.pendingTimeoutMs,
        });
      }
    }
    return requests;
  }

  #checkModel(name: string): void {
    const names = [this.model.id, ...this.model.aliases];
    if (names.includes(name)) return;
    throw new CodedError(
      "model_not_found",
      `The model ${JSON.stringify(name).slice(0, 80)} is not here. This server has ${names.map((known) => JSON.stringify(known)).join(", ")}; GET /v1/models lists it.`,
      { param: "model" },
    );
  }

  #checkCount({ prompts, choices }: GenerationRequest): void {
    const { maxConcurrency, maxPendingRequests } = this.capacity;
    const most = maxConcurrency + maxPendingRequests;
    const wanted = prompts.length * choices;
    if (wanted <= most) return;
    throw new CodedError(
      "invalid_value",
      `${prompts.length} prompts with n = ${choices} make ${wanted} generations; this server holds ${most} at a time (${maxConcurrency} running, ${maxPendingRequests} waiting). Send fewer in one request.`,
      { param: choices > 1 ? "n" : "prompt" },
    );
  }

  #checkLogitBias({ sampling }: GenerationRequest): void {
    const last = this.#parts.tokenizer.vocabSize - 1;
    const foreign = sampling.logitBias?.find(([token]) => token > last);
    if (!foreign) return;
    throw new CodedError(
      "invalid_value",
      `logit_bias names the token ${foreign[0]}; the vocabulary has the tokens 0 to ${last}.`,
      {
        param: `logit_bias.${foreign[0]}`,
      },
    );
  }
}

/** One place must be left for the first output token, unless none is wanted. */
function checkFits(promptTokens: number, maxTokens: number, windowTokens: number, param: string): void {
  if (promptTokens === 0) throw new CodedError("invalid_value", `${param} has no tokens; at least one is needed.`, { param });
  const most = maxTokens > 0 ? windowTokens - 1 : windowTokens;
  if (promptTokens <= most) return;
  throw new CodedError(
    "context_length_exceeded",
    `This model's maximum context length is ${windowTokens} tokens, but ${param} has ${promptTokens} tokens. Shorten it, or start the server with a larger window.`,
    { param },
  );
}
