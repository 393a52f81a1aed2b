/** An engine over a scripted backend, with everything that it published sorted by request. */

import type { RequestId } from "@kvasir/kit";
import { ManualClock } from "@kvasir/kit";
import { Engine, type EngineOptions } from "../../src/engine.ts";
import type { EngineEvent, EngineRequest, EngineResult, SamplingSettings } from "../../src/request.ts";
import { PAGE_TOKENS } from "../../src/store/page.ts";
import { PrefixStore } from "../../src/store/prefix-store.ts";
import { ScriptedBackend, type ScriptedBackendOptions } from "../../src/scripted-backend.ts";

export const greedy: SamplingSettings = {
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  typicalP: 1,
  repeatPenalty: 1,
  repeatLastN: 0,
  frequencyPenalty: 0,
  presencePenalty: 0,
  logitBias: [],
  seed: 1,
};

export const defaultOptions: EngineOptions = {
  maxConcurrency: 4,
  maxPendingRequests: 16,
  itlTargetMs: 250,
  prefillChunkTokens: 32,
  draftTokens: 0,
};

export interface Outcome {
  readonly text: string;
  readonly tokens: number[];
  readonly result: EngineResult | null;
  readonly errorCode: string | null;
}

export class EngineHarness {
  readonly clock = new ManualClock();
  readonly backend: ScriptedBackend;
  readonly engine: Engine;
  readonly events: EngineEvent[] = [];
  fatal: unknown = null;
  readonly #waiters = new Set<() => void>();

  /** @param hostPages pages that the prefix store may hold; null: reuse in lanes only */
  constructor(
    backend: ScriptedBackendOptions | ((clock: ManualClock) => ScriptedBackendOptions) = {},
    options: Partial<EngineOptions> = {},
    hostPages: number | null = null,
  ) {
    this.backend = new ScriptedBackend(typeof backend === "function" ? backend(this.clock) : backend);
    const publish = (events: EngineEvent[]): void => {
      this.events.push(...events);
      for (const waiter of this.#waiters) waiter();
    };
    const { rows } = this.backend;
    const storeOptions = { layout: rows.layout, clock: this.clock, recomputeMs: (from: number, to: number) => to - from };
    const reuse =
      hostPages === null
        ? null
        : {
            rows,
            store: new PrefixStore({ ...storeOptions, hostBudgetBytes: hostPages * PAGE_TOKENS * rows.layout.bytesPerToken }),
            storeTurns: false,
          };
    const onFatal = (error: unknown): void => {
      this.fatal = error;
    };
    this.engine = new Engine(this.backend, { ...defaultOptions, ...options }, this.clock, publish, onFatal, reuse);
  }

  submit(id: string, prompt: number[] | Int32Array, overrides: Partial<EngineRequest> = {}): RequestId {
    const requestId = id as RequestId;
    this.engine.submit({
      id: requestId,
      namespace: "",
      promptTokens: Int32Array.from(prompt),
      maxTokens: 8,
      sampling: greedy,
      stop: [],
      ignoreEos: false,
      topLogprobs: null,
      pendingTimeoutMs: 60_000,
      ...overrides,
    });
    return requestId;
  }

  of(id: string): EngineEvent[] {
    return this.events.filter((event) => event.id === id);
  }

  /** Resolves when `condition` holds; it is looked at after every publication. */
  until(condition: () => boolean): Promise<void> {
    if (condition()) return Promise.resolve();
    return new Promise((resolve) => {
      const waiter = (): void => {
        if (!condition()) return;
        this.#waiters.delete(waiter);
        resolve();
      };
      this.#waiters.add(waiter);
    });
  }

  ended(id: string): boolean {
    return this.of(id).some((event) => event.kind === "finished" || event.kind === "failed");
  }

  async outcome(id: string): Promise<Outcome> {
    await this.until(() => this.ended(id));
    const outputs = this.of(id).filter((event) => event.kind === "output");
    const last = this.of(id).at(-1);
    return {
      text: outputs.map((event) => event.text).join(""),
      tokens: outputs.flatMap((event) => event.tokens),
      result: last?.kind === "finished" || last?.kind === "failed" ? last.result : null,
      errorCode: last?.kind === "failed" ? last.error.code : null,
    };
  }

  async run(id: string, prompt: number[] | Int32Array, overrides: Partial<EngineRequest> = {}): Promise<Outcome> {
    this.submit(id, prompt, overrides);
    return this.outcome(id);
  }

  /** Lets the engine come to rest and checks that nothing is left behind. */
  async settle(): Promise<void> {
    while (this.engine.busy) await new Promise<void>((resolve) => setImmediate(resolve));
    this.engine.checkIntegrity();
  }
}

/** Distinct prompt tokens: `start`, `start + 1`, … within the scripted vocabulary of bytes. */
export function promptOf(start: number, length: number): number[] {
  return Array.from({ length }, (_, index) => (start + index * 7) % 256);
}
