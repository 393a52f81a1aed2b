/** Time as a parameter: everything that waits or measures takes a Clock, so that a test owns time. */

/** Stops the timer; harmless when it has already fired. */
export type StopTimer = () => void;

export interface Clock {
  /** Milliseconds on a monotonic scale; only differences mean anything. */
  monotonicMs(): number;
  /** Milliseconds since the Unix epoch. */
  wallMs(): number;
  /** Calls `callback` once after `delayMs`. The timer never keeps the process alive. */
  startTimer(delayMs: number, callback: () => void): StopTimer;
}

export const systemClock: Clock = {
  monotonicMs: () => performance.now(),
  wallMs: () => Date.now(),
  startTimer: (delayMs, callback) => {
    const timer = setTimeout(callback, delayMs);
    timer.unref();
    return () => clearTimeout(timer);
  },
};

interface ManualTimer {
  dueMs: number;
  callback: () => void;
}

/** A clock that stands still until `advance` moves it; timers fire in order of their due time. */
export class ManualClock implements Clock {
  #nowMs: number;
  readonly #epochMs: number;
  readonly #timers = new Set<ManualTimer>();

  constructor(startMs = 0, epochMs = 1_700_000_000_000) {
    this.#nowMs = startMs;
    this.#epochMs = epochMs;
  }

  monotonicMs(): number {
    return this.#nowMs;
  }

  wallMs(): number {
    return this.#epochMs + this.#nowMs;
  }

  startTimer(delayMs: number, callback: () => void): StopTimer {
    const timer = { dueMs: this.#nowMs + delayMs, callback };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  advance(byMs: number): void {
    const untilMs = this.#nowMs + byMs;
    for (let next = this.#earliestUntil(untilMs); next; next = this.#earliestUntil(untilMs)) {
      this.#timers.delete(next);
      this.#nowMs = Math.max(this.#nowMs, next.dueMs);
      next.callback();
    }
    this.#nowMs = untilMs;
  }

  get pendingTimers(): number {
    return this.#timers.size;
  }

  #earliestUntil(untilMs: number): ManualTimer | undefined {
    let earliest: ManualTimer | undefined;
    for (const timer of this.#timers) {
      if (timer.dueMs <= untilMs && (!earliest || timer.dueMs < earliest.dueMs)) earliest = timer;
    }
    return earliest;
  }
}
