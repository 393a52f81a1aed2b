/**
 * Requests that wait for a lane: first in, first out, bounded in number and time. Timers belong to the engine's clock;
 * whoever takes or drops an entry stops its timer here, so none outlives its request.
 */

import type { Clock, RequestId, StopTimer } from "@kvasir/kit";
import type { Expectation } from "./lane-memory.ts";
import type { EngineRequest } from "./request.ts";

export interface WaitingRequest {
  readonly request: EngineRequest;
  readonly arrivedMs: number;
  readonly expectation: Expectation;
  /** Prompt tokens shared with each running request that it was compared with. */
  readonly sharedWith: Map<RequestId, number>;
}

export class WaitingQueue {
  readonly #entries = new Map<RequestId, WaitingRequest & { readonly stopTimer: StopTimer }>();
  readonly #clock: Clock;
  readonly #onExpired: (waiting: WaitingRequest) => void;

  /** @param onExpired called with a request whose time is up; it has left the queue already */
  constructor(clock: Clock, onExpired: (waiting: WaitingRequest) => void) {
    this.#clock = clock;
    this.#onExpired = onExpired;
  }

  get length(): number {
    return this.#entries.size;
  }

  has(id: RequestId): boolean {
    return this.#entries.has(id);
  }

  /** Appends and returns the position, 1 being the next to run. */
  push(request: EngineRequest, expectation: Expectation): number {
    const waiting = { request, arrivedMs: this.#clock.monotonicMs(), expectation, sharedWith: new Map<RequestId, number>() };
    const stopTimer = this.#clock.startTimer(request.pendingTimeoutMs, () => {
      this.#entries.delete(request.id);
      expectation.release();
      this.#onExpired(waiting);
    });
    this.#entries.set(request.id, { ...waiting, stopTimer });
    return this.#entries.size;
  }

  /** In order of arrival. */
  entries(): readonly WaitingRequest[] {
    return [...this.#entries.values()];
  }

  peek(): WaitingRequest | undefined {
    return this.#entries.values().next().value;
  }

  shift(): WaitingRequest | undefined {
    const first = this.peek();
    return first ? this.remove(first.request.id) : undefined;
  }

  /** Takes a request out, wherever it stands. */
  remove(id: RequestId): WaitingRequest | undefined {
    const entry = this.#entries.get(id);
    if (!entry) return undefined;
    entry.stopTimer();
    entry.expectation.release();
    this.#entries.delete(id);
    return entry;
  }
}
