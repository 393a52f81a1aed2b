/**
 * The rows of one step and whose they are. Built anew for every step over one reused batch; the engine decodes it and reads
 * the outcome back by request.
 *
 *   rows   [decode rows: one a decoding request][prefill rows: a run of prompt tokens a prefilling request]
 */

import { Batch } from "./batch.ts";
import type { RunningRequest } from "./running-request.ts";
import type { StepCost } from "./step-cost.ts";
import { sharePrefill } from "./step-plan.ts";

export interface DecodeRow {
  readonly running: RunningRequest;
  readonly row: number;
}

export interface PrefillRows {
  readonly running: RunningRequest;
  /** Prompt tokens [storedTokens, storedTokens + tokens) of the request. */
  readonly tokens: number;
  /** Row whose logits give the first output token, or -1. */
  readonly outputRow: number;
}

export interface PrefillLimits {
  /** Longest step while streams run, in milliseconds. */
  readonly targetMs: number;
  /** Prefill tokens of a step while nothing decodes. */
  readonly chunkTokens: number;
}

/** Fewest prefill tokens a step takes while streams run, so that prefill always advances. */
const LEAST_PREFILL_TOKENS = 16;

export class Step {
  readonly batch: Batch;
  #decode: DecodeRow[] = [];
  #prefill: PrefillRows[] = [];

  /** @param batchTokens most rows of a step */
  constructor(batchTokens: number) {
    this.batch = new Batch(batchTokens);
  }

  get decode(): readonly DecodeRow[] {
    return this.#decode;
  }

  get prefill(): readonly PrefillRows[] {
    return this.#prefill;
  }

  get prefillTokens(): number {
    return this.#prefill.reduce((total, { tokens }) => total + tokens, 0);
  }

  /** Mean position of the prefilled tokens, as it was when the step was planned. */
  get prefillDepth(): number {
    const positions = this.#prefill.reduce(
      (total, { running, tokens }) => total + tokens * (running.storedTokens + tokens / 2),
      0,
    );
    return this.#prefill.length === 0 ? 0 : positions / this.prefillTokens;
  }

  /** Plans the next step: every decoding request that is not held gets its row, prefill shares what the target leaves. */
  plan(requests: Iterable<RunningRequest>, cost: StepCost, limits: PrefillLimits): void {
    this.batch.clear();
    this.#decode = [];
    this.#prefill = [];
    const prefilling: RunningRequest[] = [];
    for (const running of requests) {
      if (running.prefilling) prefilling.push(running);
      else if (running.samples && !running.paused) {
        this.#decode.push({ running, row: this.batch.push(running.lane, running.storedTokens, running.pendingToken, true) });
      }
    }
    const budgetTokens = cost.prefillBudget({
      decodeRows: this.#decode.length,
      depth: prefilling[0]?.storedTokens ?? 0,
      targetMs: limits.targetMs,
      leastTokens: LEAST_PREFILL_TOKENS,
      mostTokens: Math.min(limits.chunkTokens, this.batch.room),
    });
    const shares = sharePrefill(
      prefilling.map((running) => ({ remainingTokens: running.remainingPrompt })),
      budgetTokens,
    );
    for (const [index, running] of prefilling.entries()) {
      const tokens = shares[index] ?? 0;
      if (tokens > 0) this.#prefill.push(this.#pushPrefill(running, tokens));
    }
  }

  #pushPrefill(running: RunningRequest, tokens: number): PrefillRows {
    const { promptTokens } = running.request;
    let outputRow = -1;
    for (let position = running.storedTokens; position < running.storedTokens + tokens; position++) {
      const wantsLogits = running.samples && position === promptTokens.length - 1;
      const row = this.batch.push(running.lane, position, promptTokens[position] ?? 0, wantsLogits);
      if (wantsLogits) outputRow = row;
    }
    return { running, tokens, outputRow };
  }
}
