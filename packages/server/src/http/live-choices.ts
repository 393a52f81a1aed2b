/**
 * What is known of a request's choices while they run: for keep-alive comments, progress chunks and per-token timings. Times
 * here are this process's, from the arrival of the engine's events; the final `timings` are the engine's own.
 */

import type { Clock } from "@kvasir/kit";
import type { GenerationEvent, LiveChoice } from "@kvasir/wire";

interface Progress {
  position: number | null;
  cachedTokens: number;
  processedTokens: number;
  totalTokens: number;
  outputTokens: number;
  queueMs: number;
  admittedMs: number | null;
  firstOutputMs: number | null;
  lastOutputMs: number;
}

export class LiveChoices {
  readonly #clock: Clock;
  readonly #choices = new Map<number, Progress>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  take(event: GenerationEvent): void {
    if (!("choice" in event)) return;
    const choice = this.#choice(event.choice);
    switch (event.kind) {
      case "queued":
        choice.position = event.position;
        return;
      case "admitted":
        choice.position = null;
        choice.admittedMs = this.#clock.monotonicMs();
        choice.cachedTokens = event.cachedTokens;
        choice.processedTokens = event.cachedTokens;
        choice.totalTokens = event.promptTokens;
        choice.queueMs = event.queueMs;
        return;
      case "prefill":
        choice.processedTokens = event.processedTokens;
        return;
      case "output":
        choice.lastOutputMs = this.#clock.monotonicMs();
        choice.firstOutputMs ??= choice.lastOutputMs;
        choice.outputTokens += event.tokens.length;
        return;
      case "choice-finished":
        return;
    }
  }

  of(index: number): LiveChoice {
    const choice = this.#choice(index);
    const nowMs = this.#clock.monotonicMs();
    const admittedMs = choice.admittedMs ?? nowMs;
    const firstMs = choice.firstOutputMs ?? nowMs;
    return {
      cachedTokens: choice.cachedTokens,
      computedTokens: choice.processedTokens - choice.cachedTokens,
      outputTokens: choice.outputTokens,
      sinceAdmissionMs: nowMs - admittedMs,
      timings: {
        queueMs: choice.queueMs,
        restoreMs: 0,
        prefillMs: firstMs - admittedMs,
        decodeMs: choice.firstOutputMs === null ? 0 : choice.lastOutputMs - firstMs,
      },
    };
  }

  /** One line for a comment, of the choice that is furthest behind: `queued position 3`, `prefill 512/8000`, `decode`. */
  describe(): string {
    const choices = [...this.#choices.values()];
    const queued = choices.find((choice) => choice.position !== null);
    if (queued) return `queued position ${queued.position}`;
    const prefilling = choices.find((choice) => choice.admittedMs !== null && choice.outputTokens === 0);
    if (prefilling) return `prefill ${prefilling.processedTokens}/${prefilling.totalTokens}`;
    return choices.some((choice) => choice.outputTokens > 0) ? "decode" : "waiting";
  }

  #choice(index: number): Progress {
    let choice = this.#choices.get(index);
    if (!choice) {
      choice = {
        position: null,
        cachedTokens: 0,
        processedTokens: 0,
        totalTokens: 0,
        outputTokens: 0,
        queueMs: 0,
        admittedMs: null,
        firstOutputMs: null,
        lastOutputMs: 0,
      };
      this.#choices.set(index, choice);
    }
    return choice;
  }
}
