/**
 * The server's side of an engine that runs elsewhere. Owns the requests in flight: each gets its events in order and exactly
 * one terminal event, also when the other side dies; after that its id means nothing here, so late cancels are harmless.
 *
 * Listeners run inside the delivery of a batch of events. One that throws does not keep the others from theirs.
 */

import { assertNever, CodedError, fromErrorRecord, invariant, type RequestId, toErrorRecord } from "@kvasir/kit";
import type { BackendFacts } from "../backend.ts";
import { type ChildMessage, type ParentMessage, PROTOCOL_VERSION } from "../protocol.ts";
import type { EngineEvent, EngineRequest, EngineResult, EngineStatus } from "../request.ts";
import { unadmittedResult } from "../running-request.ts";
import type { Channel } from "./channel.ts";
import { versionMismatch } from "./serve-engine.ts";

export type EngineListener = (event: EngineEvent) => void;

interface InFlight {
  readonly listener: EngineListener;
  /** What is known so far, for a request whose engine dies. */
  result: EngineResult;
}

interface StatusWaiter {
  readonly resolve: (status: EngineStatus) => void;
  readonly reject: (error: CodedError) => void;
}

export interface EngineClientOptions {
  /** Told the share of the model that is loaded, 0 to 1, while the engine opens. */
  readonly onProgress?: (fraction: number) => void;
}

export class EngineClient {
  readonly facts: BackendFacts;
  readonly #channel: Channel<ParentMessage, ChildMessage>;
  readonly #inFlight = new Map<RequestId, InFlight>();
  readonly #statusWaiters = new Map<number, StatusWaiter>();
  readonly #closeListeners = new Set<(expected: boolean) => void>();
  readonly #closed: Promise<void>;
  #tickets = 0;
  #closing = false;
  #lost = false;

  /**
   * Opens an engine with `config` at the other end of the channel.
   * @throws CodedError what the engine could not open with; engine_start_failed when it ended before it answered or speaks
   *   another protocol. The channel is closed then.
   */
  static open<Config>(
    channel: Channel<ParentMessage<Config>, ChildMessage>,
    config: Config,
    options: EngineClientOptions = {},
  ): Promise<EngineClient> {
    return new Promise((resolve, reject) => {
      const stops: Array<() => void> = [];
      const fail = (error: CodedError): void => {
        for (const stop of stops) stop();
        channel.close();
        reject(error);
      };
      stops.push(
        channel.onClose(() =>
          fail(
            new CodedError("engine_start_failed", "The engine process ended before its model was loaded. Its log tells why."),
          ),
        ),
        channel.onMessage((message) => {
          if (message.kind === "progress") options.onProgress?.(message.fraction);
          else if (message.kind === "open-failed") fail(fromErrorRecord(message.error));
          else if (message.kind === "opened" && message.version !== PROTOCOL_VERSION)
            fail(versionMismatch(message.version, PROTOCOL_VERSION));
          else if (message.kind === "opened") {
            for (const stop of stops) stop();
            resolve(new EngineClient(channel, message.facts));
          }
        }),
      );
      // A channel that is closed already says so through onClose.
      channel.send({ kind: "open", version: PROTOCOL_VERSION, config });
    });
  }

  private constructor(channel: Channel<ParentMessage, ChildMessage>, facts: BackendFacts) {
    this.#channel = channel;
    this.facts = facts;
    channel.onMessage((message) => this.#receive(message));
    this.#closed = new Promise((resolve) => {
      channel.onClose(() => {
        resolve();
        this.#lose();
      });
    });
  }

  /** Requests that have not ended. */
  get inFlight(): number {
    return this.#inFlight.size;
  }

  /** Hands a request over. `listener` gets its events, never inside this call; the last is `finished` or `failed`. */
  submit(request: EngineRequest, listener: EngineListener): void {
    const { id } = request;
    invariant(!this.#inFlight.has(id), `request ${id} is in flight already`);
    const result = unadmittedResult(request, "cancelled", 0);
    if (!this.#lost && this.#channel.send({ kind: "submit", request })) {
      this.#inFlight.set(id, { listener, result });
      return;
    }
    const error = toErrorRecord(unavailable());
    queueMicrotask(() => listener({ kind: "failed", id, error, result }));
  }

  /** Asks for the end of a request; its terminal event still comes. */
  cancel(id: RequestId): void {
    if (this.#inFlight.has(id)) this.#channel.send({ kind: "cancel", id });
  }

  /** Reports that a request's reader has taken `tokens` more of the tokens that its `output` events brought. */
  consumed(id: RequestId, tokens: number): void {
    if (tokens > 0 && this.#inFlight.has(id)) this.#channel.send({ kind: "consumed", id, tokens });
  }

  /** @throws CodedError engine_unavailable when the engine is gone or goes before it answers */
  status(): Promise<EngineStatus> {
    return new Promise((resolve, reject) => {
      const ticket = ++this.#tickets;
      if (this.#lost || !this.#channel.send({ kind: "status-request", ticket })) reject(unavailable());
      else this.#statusWaiters.set(ticket, { resolve, reject });
    });
  }

  /**
   * Ends the engine: new requests are refused, running ones have `drainMs` to end, then they are cancelled. Resolves when the
   * channel is closed. Called again, a smaller `drainMs` shortens the wait.
   */
  close(drainMs: number): Promise<void> {
    this.#closing = true;
    this.#channel.send({ kind: "close", drainMs });
    return this.#closed;
  }

  /** Calls `listener` once when the engine is gone; `expected` after `close`. Returns its remover. */
  onClose(listener: (expected: boolean) => void): () => void {
    if (this.#lost) {
      queueMicrotask(() => listener(this.#closing));
      return () => {};
    }
    this.#closeListeners.add(listener);
    return () => this.#closeListeners.delete(listener);
  }

  #receive(message: ChildMessage): void {
    switch (message.kind) {
      case "events":
        this.#deliver(message.events);
        return;
      case "status":
        this.#statusWaiters.get(message.ticket)?.resolve(message.status);
        this.#statusWaiters.delete(message.ticket);
        return;
      case "closed":
        this.#closing = true;
        return;
      case "progress":
      case "opened":
      case "open-failed":
        return;
      default:
        assertNever(message);
    }
  }

  #deliver(events: readonly EngineEvent[]): void {
    const thrown: unknown[] = [];
    for (const event of events) {
      const entry = this.#inFlight.get(event.id);
      if (!entry) continue;
      if (event.kind === "finished" || event.kind === "failed") this.#inFlight.delete(event.id);
      else entry.result = withEvent(entry.result, event);
      try {
        entry.listener(event);
      } catch (error) {
        thrown.push(error);
      }
    }
    if (thrown.length > 0) throw thrown[0];
  }

  #lose(): void {
    this.#lost = true;
    const error = new CodedError(
      "engine_crashed",
      "The engine process ended while this request was in it. Send the request again.",
    );
    const failures = Array.from(
      this.#inFlight,
      ([id, { result }]) => ({ kind: "failed", id, error: toErrorRecord(error), result }) as const,
    );
    for (const { reject } of this.#statusWaiters.values()) reject(unavailable());
    this.#statusWaiters.clear();
    const listeners = [...this.#closeListeners];
    this.#closeListeners.clear();
    try {
      this.#deliver(failures);
    } finally {
      for (const listener of listeners) listener(this.#closing);
    }
  }
}

function unavailable(): CodedError {
  return new CodedError(
    "engine_unavailable",
    "The engine is not running. It is started again by itself; try again in a moment.",
  );
}

/** What an event tells about a request, added to its result. */
function withEvent(result: EngineResult, event: EngineEvent): EngineResult {
  switch (event.kind) {
    case "admitted":
      return {
        ...result,
        lane: event.lane,
        cachedTokens: event.cachedTokens,
        timings: { ...result.timings, queueMs: event.queueMs },
      };
    case "prefill":
      return { ...result, computedTokens: event.processedTokens - result.cachedTokens };
    case "output":
      return { ...result, outputTokens: result.outputTokens + event.tokens.length };
    case "queued":
    case "finished":
    case "failed":
      return result;
    default:
      return assertNever(event);
  }
}
