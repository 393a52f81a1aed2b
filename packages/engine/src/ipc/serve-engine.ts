/**
 * The child's side: opens an engine when told to, drives it by messages, and closes it when told to or when the parent is
 * gone, so that no child outlives its server. One engine, one parent, one life.
 *
 *   waiting for open → opening → serving → closing → closed
 */

import { assertNever, type Clock, CodedError, messageOf, type StopTimer, systemClock, toErrorRecord } from "@kvasir/kit";
import type { BackendFacts } from "../backend.ts";
import type { Engine } from "../engine.ts";
import { type ChildMessage, type ParentMessage, PROTOCOL_VERSION } from "../protocol.ts";
import type { EngineEvent, EngineRequest } from "../request.ts";
import { unadmittedResult } from "../running-request.ts";
import type { Channel } from "./channel.ts";
import { defaultReaderWindow, type ReaderWindowOptions, ReaderWindows } from "./reader-windows.ts";

export interface OpenEngineHooks {
  /** To be passed to the engine. */
  readonly publish: (events: EngineEvent[]) => void;
  /** Share of the model that is loaded, 0 to 1. */
  readonly progress: (fraction: number) => void;
  /** Aborted when nobody waits for the engine any more. */
  readonly signal: AbortSignal;
}

export interface OpenedEngine {
  readonly engine: Pick<Engine, "submit" | "cancel" | "setPaused" | "status" | "drain" | "close">;
  readonly facts: BackendFacts;
}

/** Builds backend and engine from what the parent sent. What it throws becomes `open-failed`. */
export type OpenEngine<Config> = (config: Config, hooks: OpenEngineHooks) => Promise<OpenedEngine>;

export interface ServeEngineOptions {
  readonly clock?: Clock;
  readonly readerWindow?: Partial<ReaderWindowOptions>;
}

/** Resolves when the engine is closed and the channel let go; rejects when the engine cannot be closed. */
export function serveEngine<Config>(
  channel: Channel<ChildMessage, ParentMessage<Config>>,
  open: OpenEngine<Config>,
  options: ServeEngineOptions = {},
): Promise<void> {
  return new EngineHost(channel, open, options).ended;
}

class EngineHost<Config> {
  readonly ended: Promise<void>;
  readonly #channel: Channel<ChildMessage, ParentMessage<Config>>;
  readonly #open: OpenEngine<Config>;
  readonly #clock: Clock;
  readonly #windows: ReaderWindows;
  /** Aborted by the first `close` or by the loss of the parent. */
  readonly #closing = new AbortController();
  #opening: Promise<OpenedEngine | null> | null = null;
  #opened: OpenedEngine | null = null;
  /** When one of these fires, the drain is over. */
  readonly #drainTimers: StopTimer[] = [];
  #cutDrain: () => void = () => {};
  #resolveEnded: (ending: Promise<void>) => void = () => {};

  constructor(channel: Channel<ChildMessage, ParentMessage<Config>>, open: OpenEngine<Config>, options: ServeEngineOptions) {
    this.#channel = channel;
    this.#open = open;
    this.#clock = options.clock ?? systemClock;
    this.#windows = new ReaderWindows({ ...defaultReaderWindow, ...options.readerWindow }, this.#clock, {
      setPaused: (id, paused) => this.#opened?.engine.setPaused(id, paused),
      cancel: (id) => this.#opened?.engine.cancel(id),
    });
    this.ended = new Promise((resolve) => {
      this.#resolveEnded = resolve;
    });
    channel.onClose(() => this.#close(0));
    channel.onMessage((message) => this.#receive(message));
  }

  #receive(message: ParentMessage<Config>): void {
    switch (message.kind) {
      case "open":
        this.#opening ??= this.#openEngine(message.version, message.config);
        return;
      case "submit":
        if (this.#opened) this.#opened.engine.submit(message.request);
        else this.#refuse(message.request);
        return;
      case "cancel":
        this.#opened?.engine.cancel(message.id);
        return;
      case "consumed":
        this.#windows.consumed(message.id, message.tokens);
        return;
      case "status-request":
        if (this.#opened) this.#channel.send({ kind: "status", ticket: message.ticket, status: this.#opened.engine.status() });
        return;
      case "close":
        this.#close(message.drainMs);
        return;
      default:
        assertNever(message);
    }
  }

  async #openEngine(version: number, config: Config): Promise<OpenedEngine | null> {
    try {
      if (version !== PROTOCOL_VERSION) throw versionMismatch(version, PROTOCOL_VERSION);
      const opened = await this.#open(config, {
        publish: (events) => this.#publish(events),
        progress: (fraction) => this.#channel.send({ kind: "progress", fraction }),
        signal: this.#closing.signal,
      });
      this.#opened = opened;
      if (!this.#closing.signal.aborted) this.#channel.send({ kind: "opened", version: PROTOCOL_VERSION, facts: opened.facts });
      return opened;
    } catch (cause) {
      const error =
        cause instanceof CodedError
          ? cause
          : new CodedError("engine_start_failed", `The engine could not start: ${messageOf(cause)}`, { cause });
      this.#channel.send({ kind: "open-failed", error: toErrorRecord(error) });
      this.#close(0);
      return null;
    }
  }

  #publish(events: EngineEvent[]): void {
    this.#channel.send({ kind: "events", events });
    for (const event of events) {
      if (event.kind === "output") this.#windows.sent(event.id, event.tokens.length);
      else if (event.kind === "finished" || event.kind === "failed") this.#windows.forget(event.id);
    }
  }

  #refuse(request: EngineRequest): void {
    const error = toErrorRecord(
      new CodedError("engine_starting", "The engine is still loading its model. Try again in a moment."),
    );
    this.#channel.send({
      kind: "events",
      events: [{ kind: "failed", id: request.id, error, result: unadmittedResult(request, "cancelled", 0) }],
    });
  }

  #close(drainMs: number): void {
    if (!this.#closing.signal.aborted) {
      this.#closing.abort();
      this.#resolveEnded(this.#shutDown());
    }
    if (drainMs > 0) this.#drainTimers.push(this.#clock.startTimer(drainMs, () => this.#cutDrain()));
    else this.#cutDrain();
  }

  async #shutDown(): Promise<void> {
    const drainOver = new Promise<void>((resolve) => {
      this.#cutDrain = resolve;
    });
    // An open engine starts to drain inside this call: what the parent submits next is refused.
    const opened = this.#opened ?? (await this.#opening);
    if (opened) {
      await Promise.race([opened.engine.drain(), drainOver]);
      await opened.engine.close();
      this.#channel.send({ kind: "closed" });
    }
    for (const stopTimer of this.#drainTimers) stopTimer();
    this.#channel.close();
  }
}

/** The refusal of a side that speaks another protocol. */
export function versionMismatch(theirs: number, ours: number): CodedError {
  return new CodedError(
    "engine_start_failed",
    `The other process speaks engine protocol ${theirs}, this one ${ours}. Server and engine must come from one installation: stop every kvasir process and start again.`,
  );
}
