/**
 * Keeps one engine running. Owns the engine process: launches it, watches it, launches it again when it is lost, ends it.
 * Requests in flight are told by their `EngineClient`; new ones wait here while the engine comes back.
 *
 *   starting → ready ⇄ restarting        starting → failed        any → stopping
 *
 * The pause before a restart doubles from 0.25 s to 10 s, and starts over once the engine has been ready for a minute.
 */

import type { BackendFacts, EngineClient } from "@kvasir/engine";
import { type Clock, CodedError, type StopTimer } from "@kvasir/kit";
import type { GeneratorState } from "./generator.ts";

/** One life of an engine. */
export interface LaunchedEngine {
  /** Resolves when the engine is open, rejects with a `CodedError` when it cannot be. */
  readonly opened: Promise<EngineClient>;
  /** Resolves when the process is gone. */
  readonly exited: Promise<void>;
  /** Ends the process without asking it. Harmless when it is gone. */
  kill(): void;
}

export type LaunchEngine = (onProgress: (fraction: number) => void) => LaunchedEngine;

export interface SupervisorOptions {
  readonly clock: Clock;
  /** Told of every change. */
  readonly onState?: (state: GeneratorState, cause: unknown) => void;
  readonly firstPauseMs?: number;
  readonly longestPauseMs?: number;
  /** Being ready for that long forgets earlier failures. */
  readonly stableAfterMs?: number;
  /** How long a request waits for a restart. */
  readonly restartWaitMs?: number;
  /** How long a closed engine may take to exit before it is killed. */
  readonly exitGraceMs?: number;
}

export class EngineSupervisor {
  readonly #launch: LaunchEngine;
  readonly #options: Required<Omit<SupervisorOptions, "onState">> & Pick<SupervisorOptions, "onState">;
  #state: GeneratorState = "starting";
  #engine: LaunchedEngine | null = null;
  #client: EngineClient | null = null;
  #facts: BackendFacts | null = null;
  #loadProgress = 0;
  #restarts = 0;
  #failuresInARow = 0;
  #stopTimer: StopTimer = () => {};
  #closed: Promise<void> | null = null;
  readonly #waiters = new Set<() => void>();

  constructor(launch: LaunchEngine, options: SupervisorOptions) {
    this.#launch = launch;
    this.#options = {
      firstPauseMs: 250,
      longestPauseMs: 10_000,
      stableAfterMs: 60_000,
      restartWaitMs: 10_000,
      exitGraceMs: 5_000,
      ...options,
    };
  }

  get state(): GeneratorState {
    return this.#state;
  }

  /** The engine that is ready now. */
  get client(): EngineClient | null {
    return this.#client;
  }

  /** Of the engine that is or was ready last. */
  get facts(): BackendFacts | null {
    return this.#facts;
  }

  get loadProgress(): number {
    return this.#loadProgress;
  }

  get restarts(): number {
    return this.#restarts;
  }

  /** Launches the engine the first time. @throws CodedError why it cannot start; there is no second try then */
  async start(): Promise<BackendFacts> {
    try {
      const client = await this.#open();
      return client.facts;
    } catch (error) {
      if (this.#state !== "stopping") this.#enter("failed", error);
      throw error;
    }
  }

  /** The engine that is ready, now or within the restart wait. @throws CodedError why there is none, or the signal's reason */
  async acquire(signal: AbortSignal): Promise<EngineClient> {
    if (this.#state === "restarting") await this.#restarted(signal);
    signal.throwIfAborted();
    if (this.#state === "ready" && this.#client) return this.#client;
    throw this.#refusal();
  }

  /** Why no request can be taken now; null while one can be taken, at once or after a restart. */
  get refusal(): CodedError | null {
    return this.#state === "ready" || this.#state === "restarting" ? null : this.#refusal();
  }

  /** Ends the engine and waits until its process is gone. Called again, a smaller `drainMs` shortens the wait. */
  close(drainMs: number): Promise<void> {
    if (this.#state !== "stopping") {
      this.#stopTimer();
      this.#enter("stopping", null);
      this.#closed = this.#end(drainMs);
    } else if (this.#client) {
      void this.#client.close(drainMs);
    }
    return this.#closed ?? Promise.resolve();
  }

  async #open(): Promise<EngineClient> {
    this.#loadProgress = 0;
    const engine = this.#launch((fraction) => {
      this.#loadProgress = fraction;
    });
    this.#engine = engine;
    try {
      const client = await engine.opened;
      this.#client = client;
      this.#facts = client.facts;
      this.#loadProgress = 1;
      client.onClose(() => this.#lose(engine));
      if (this.#state !== "stopping") this.#becomeReady();
      return client;
    } catch (error) {
      engine.kill();
      await engine.exited;
      throw error;
    }
  }

  #becomeReady(): void {
    this.#enter("ready", null);
    this.#stopTimer = this.#options.clock.startTimer(this.#options.stableAfterMs, () => {
      this.#failuresInARow = 0;
    });
  }

  #lose(engine: LaunchedEngine): void {
    this.#client = null;
    if (this.#state === "stopping") return;
    this.#stopTimer();
    // Without its channel the process is of no use, whatever it still does.
    engine.kill();
    this.#enter("restarting", new CodedError("engine_crashed", "The engine process ended."));
    void engine.exited.then(() => this.#restartLater());
  }

  #restartLater(): void {
    if (this.#state !== "restarting") return;
    const { firstPauseMs, longestPauseMs, clock } = this.#options;
    const pauseMs = Math.min(firstPauseMs * 2 ** this.#failuresInARow, longestPauseMs);
    this.#failuresInARow++;
    this.#stopTimer = clock.startTimer(pauseMs, () => void this.#restart());
  }

  async #restart(): Promise<void> {
    if (this.#state !== "restarting") return;
    this.#restarts++;
    try {
      await this.#open();
    } catch (error) {
      this.#options.onState?.(this.#state, error);
      this.#restartLater();
    }
  }

  async #end(drainMs: number): Promise<void> {
    const engine = this.#engine;
    if (!engine) return;
    if (this.#client) await this.#client.close(drainMs);
    else engine.kill();
    const stopTimer = this.#options.clock.startTimer(this.#options.exitGraceMs, () => engine.kill());
    await engine.exited;
    stopTimer();
  }

  #enter(state: GeneratorState, cause: unknown): void {
    this.#state = state;
    this.#options.onState?.(state, cause);
    const waiters = [...this.#waiters];
    this.#waiters.clear();
    for (const wake of waiters) wake();
  }

  /** Resolves when the state changes, the wait is over or the signal fires. */
  #restarted(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        this.#waiters.delete(wake);
        stopTimer();
        signal.removeEventListener("abort", wake);
        resolve();
      };
      const stopTimer = this.#options.clock.startTimer(this.#options.restartWaitMs, wake);
      this.#waiters.add(wake);
      signal.addEventListener("abort", wake);
      if (signal.aborted) wake();
    });
  }

  #refusal(): CodedError {
    if (this.#state === "starting") {
      const percent = Math.floor(this.#loadProgress * 100);
      return new CodedError(
        "engine_starting",
        `The model is loading (${percent} %). Try again in a moment; GET /ready tells when.`,
      );
    }
    if (this.#state === "stopping")
      return new CodedError("shutting_down", "The server is shutting down and takes no new requests.");
    const what =
      this.#state === "failed" ? "could not start; the server's log tells why" : "is being restarted. Try again in a moment";
    return new CodedError("engine_unavailable", `The engine ${what}.`);
  }
}
