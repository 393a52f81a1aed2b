/**
 * Back-pressure by request: how many output tokens were sent and not yet taken by their reader. A request over the window is
 * held between two tokens while all others go on; one whose reader takes nothing for too long is cancelled.
 *
 *   unread   0 ........ lowTokens ........ highTokens →
 *                       resume at or below | hold at or above
 */

import { type Clock, invariant, type RequestId, type StopTimer } from "@kvasir/kit";

export interface ReaderWindowOptions {
  /** Unread tokens at which a request is held. */
  readonly highTokens: number;
  /** Unread tokens at which it goes on. */
  readonly lowTokens: number;
  /** How long a request may be held in one stretch before it is cancelled. */
  readonly stalledReaderMs: number;
}

export const defaultReaderWindow: ReaderWindowOptions = { highTokens: 512, lowTokens: 256, stalledReaderMs: 60_000 };

interface ReaderControls {
  setPaused(id: RequestId, paused: boolean): void;
  cancel(id: RequestId): void;
}

interface Reader {
  unread: number;
  /** Running while the request is held. */
  stopTimer: StopTimer | null;
}

export class ReaderWindows {
  readonly #readers = new Map<RequestId, Reader>();
  readonly #options: ReaderWindowOptions;
  readonly #clock: Clock;
  readonly #controls: ReaderControls;

  constructor(options: ReaderWindowOptions, clock: Clock, controls: ReaderControls) {
    invariant(
      options.lowTokens < options.highTokens,
      `reader window: low ${options.lowTokens} must be below high ${options.highTokens}`,
    );
    this.#options = options;
    this.#clock = clock;
    this.#controls = controls;
  }

  /** Requests that are followed. */
  get size(): number {
    return this.#readers.size;
  }

  sent(id: RequestId, tokens: number): void {
    const reader = this.#readers.get(id) ?? { unread: 0, stopTimer: null };
    this.#readers.set(id, reader);
    reader.unread += tokens;
    if (reader.unread < this.#options.highTokens || reader.stopTimer) return;
    reader.stopTimer = this.#clock.startTimer(this.#options.stalledReaderMs, () => this.#controls.cancel(id));
    this.#controls.setPaused(id, true);
  }

  /** Late and unknown ids are ignored; more than was sent counts as all of it. */
  consumed(id: RequestId, tokens: number): void {
    const reader = this.#readers.get(id);
    if (!reader) return;
    reader.unread = Math.max(reader.unread - tokens, 0);
    if (!reader.stopTimer || reader.unread > this.#options.lowTokens) return;
    reader.stopTimer();
    reader.stopTimer = null;
    this.#controls.setPaused(id, false);
  }

  /** The request has ended. */
  forget(id: RequestId): void {
    this.#readers.get(id)?.stopTimer?.();
    this.#readers.delete(id);
  }
}
