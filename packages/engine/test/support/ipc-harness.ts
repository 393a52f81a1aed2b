/** An engine over a scripted backend at the far end of an in-memory channel, and its client at this end. */

import { ManualClock, type RequestId } from "@kvasir/kit";
import { Engine, type EngineOptions } from "../../src/engine.ts";
import type { Channel } from "../../src/ipc/channel.ts";
import { EngineClient, type EngineClientOptions } from "../../src/ipc/engine-client.ts";
import { memoryChannelPair } from "../../src/ipc/memory-channel.ts";
import { type OpenEngine, type ServeEngineOptions, serveEngine } from "../../src/ipc/serve-engine.ts";
import type { ChildMessage, ParentMessage } from "../../src/protocol.ts";
import type { EngineEvent, EngineRequest } from "../../src/request.ts";
import { ScriptedBackend, type ScriptedBackendOptions } from "../../src/scripted-backend.ts";
import { defaultOptions, greedy } from "./engine-harness.ts";

export function requestOf(id: string, changes: Partial<EngineRequest> = {}): EngineRequest {
  return {
    id: id as RequestId,
    namespace: "",
    promptTokens: Int32Array.of(1, 2, 3),
    maxTokens: 8,
    sampling: greedy,
    stop: [],
    ignoreEos: true,
    topLogprobs: null,
    pendingTimeoutMs: 60_000,
    ...changes,
  };
}

/** Collects the events of one request. */
export class EventLog {
  readonly events: EngineEvent[] = [];
  readonly #waiters = new Set<() => void>();

  readonly listener = (event: EngineEvent): void => {
    this.events.push(event);
    for (const waiter of this.#waiters) waiter();
  };

  get tokens(): number[] {
    return this.events.flatMap((event) => (event.kind === "output" ? event.tokens : []));
  }

  get last(): EngineEvent | undefined {
    return this.events.at(-1);
  }

  get ended(): boolean {
    return this.last?.kind === "finished" || this.last?.kind === "failed";
  }

  /** Resolves when `condition` holds; it is looked at after every event. */
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

  end(): Promise<void> {
    return this.until(() => this.ended);
  }
}

export class IpcHarness {
  readonly clock = new ManualClock();
  readonly parent: Channel<ParentMessage, ChildMessage>;
  readonly child: Channel<ChildMessage, ParentMessage>;
  readonly backend: ScriptedBackend;
  readonly served: Promise<void>;
  readonly #options: Partial<EngineOptions>;

  constructor(
    options: {
      backend?: ScriptedBackendOptions;
      engine?: Partial<EngineOptions>;
      serve?: ServeEngineOptions;
      open?: OpenEngine<unknown>;
    } = {},
  ) {
    [this.parent, this.child] = memoryChannelPair<ParentMessage, ChildMessage>();
    this.backend = new ScriptedBackend(options.backend);
    this.#options = options.engine ?? {};
    this.served = serveEngine(this.child, options.open ?? this.open, { clock: this.clock, ...options.serve });
  }

  readonly open: OpenEngine<unknown> = async (_, { publish }) => {
    const engine = new Engine(this.backend, { ...defaultOptions, ...this.#options }, this.clock, publish);
    return { engine, facts: this.backend.facts };
  };

  connect(options: EngineClientOptions = {}): Promise<EngineClient> {
    return EngineClient.open(this.parent, {}, options);
  }
}

/** Lets everything that is ready in the event loop happen, `turns` times. */
export async function turns(count: number): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise<void>((resolve) => setImmediate(resolve));
}

export function submit(client: EngineClient, id: string, changes: Partial<EngineRequest> = {}): EventLog {
  const log = new EventLog();
  client.submit(requestOf(id, changes), log.listener);
  return log;
}
