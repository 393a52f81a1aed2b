/**
 * The rows of one step and whose they are. Built anew for every step over one reused batch; the engine decodes it and reads
 * the outcome back by request.
 *
 *   rows   [decode rows: a decoding request's pending token, then its drafts][prefill rows: a run of prompt tokens a request]
 */

import { Batch } from "./batch.ts";
import type { RunningRequest } from "./running-request.ts";
import type { StepCost } from "./step-cost.ts";
import { sharePrefill } from "./step-plan.ts";

export interface DecodeRows {
  readonly running: RunningRequest;
  /** Row of the pending token; the drafts follow it. */
  readonly row: number;
  readonly drafts: readonly number[];
}

export interface PrefillRows {
  readonly running: RunningRequest;
  /** Prompt tokens [storedTokens, storedTokens + tokens) of the request. */
  readonly tokens: number;
  /** Row whose logits give the first output token, or -1. */
  readonly outputRow: number;
}

export interface StepLimits {
  /** Longest step while streams run, in milliseconds. */
  readonly targetMs: number;
  /** Prefill tokens of a step while nothing decodes. */
  readonly chunkTokens: number;
  /** Rows that may ask for logits. */
  readonly outputRows: number;
  /** Most drafted tokens of a request. */
  readonly draftTokens: number;
}

/** Fewest prefill tokens a step takes while streams run, so that prefill always advances. */
const LEAST_PREFILL_TOKENS = 8;

export class Step {
  readonly batch: Batch;
  #decode: DecodeRows[] = [];
  #prefill: PrefillRows[] = [];

  /** @param batchTokens most rows of a step */
  constructor(batchTokens: number) {
    this.batch = new Batch(batchTokens);
  }

  get decode(): readonly DecodeRows[] {
    return this.#decode;
  }

  get prefill(): readonly PrefillRows[] {
    return this.#prefill;
  }

  /** Rows that decode, drafts included. */
  get decodeRows(): number {
    return this.#decode.reduce((total, { drafts }) => total + 1 + drafts.length, 0);
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

  /** Plans the next step: every decoding request that is not held gets its rows, prefill shares what the target leaves. */
  plan(requests: Iterable<RunningRequest>, cost: StepCost, limits: StepLimits): void {
    this.batch.clear();
    this.#decode = [];
    this.#prefill = [];
    const prefilling: RunningRequest[] = [];
    const decoding: RunningRequest[] = [];
    for (const running of requests) {
      if (running.prefilling) prefilling.push(running);
      else if (running.samples && !running.paused) decoding.push(running);
    }
    // Each request that prefills may end its prompt in this step and ask for a row of its own.
    let spareOutputs = limits.outputRows - decoding.length - prefilling.length;
    for (const [index, running] of decoding.entries()) {
      const others = decoding.length - index - 1;
      const room = Math.min(limits.draftTokens, spareOutputs, this.batch.room - 1 - others);
      const base = this.batch.rows + 1 + others;
      const drafts = room > 0 ? running.draft(room, (moreRows) => cost.decodeMs(base + moreRows)) : [];
      spareOutputs -= drafts.length;
      this.#pushDecode(running, drafts);
    }
    const budgetTokens = cost.prefillBudget({
      decodeRows: this.batch.rows,
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

  #pushDecode(running: RunningRequest, drafts: readonly number[]): void {
    const row = this.batch.push(running.lane, running.storedTokens, running.pendingToken, true);
    for (const [index, token] of drafts.entries()) this.batch.push(running.lane, running.storedTokens + 1 + index, token, true);
    this.#decode.push({ running, row, drafts });
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
