/**
 * Follows one request from its arrival to its one terminal record. Owns the request's place in the log and in the metrics;
 * sees every event before the response does. Times of phases are the engine's; first token and duration are this process's,
 * since they hold what a client waits for.
 */

import { type Clock, type CodedErrorRecord, type ErrorCode, invariant } from "@kvasir/kit";
import { type ChoiceReport, type GenerationEvent, type GenerationRequest, statusOf } from "@kvasir/wire";
import type { RequestLog } from "./request-log.ts";
import type { RequestMetrics, RequestOutcome, RequestPhase } from "./request-metrics.ts";

export interface TraceParts {
  readonly log: RequestLog;
  readonly metrics: RequestMetrics;
  readonly clock: Clock;
}

interface ChoiceProgress {
  phase: RequestPhase;
  lastOutputMs: number | null;
  finishReason: string | null;
  stopText: string | null;
}

export class RequestTrace {
  readonly #parts: TraceParts;
  readonly #id: string;
  readonly #protocol: string;
  readonly #arrivedMs: number;
  readonly #choices: readonly ChoiceProgress[];
  #firstTokenMs: number | null = null;
  #ended = false;

  constructor(request: GenerationRequest, stream: boolean, parts: TraceParts) {
    this.#parts = parts;
    this.#id = request.id;
    this.#protocol = request.protocol;
    this.#arrivedMs = parts.clock.monotonicMs();
    const choices = request.prompts.length * request.choices;
    this.#choices = Array.from({ length: choices }, () => ({
      phase: "received",
      lastOutputMs: null,
      finishReason: null,
      stopText: null,
    }));
    parts.metrics.arrived(request);
    parts.metrics.moved(this, "received");
    parts.log.write("received", request.id, {
      protocol: request.protocol,
      model: request.model,
      stream,
      prompts: request.prompts.length,
      choices: request.choices,
      max_tokens: request.maxTokens ?? null,
    });
  }

  /** What the request is doing: of its choices the one that is furthest behind. */
  get phase(): RequestPhase {
    const order: readonly RequestPhase[] = ["received", "queued", "prefill", "decode"];
    return order.find((phase) => this.#choices.some((choice) => choice.phase === phase)) ?? "decode";
  }

  get ended(): boolean {
    return this.#ended;
  }

  take(event: GenerationEvent): void {
    const { log, metrics } = this.#parts;
    invariant(!this.#ended, `request ${this.#id} got the event ${event.kind} after its end`);
    switch (event.kind) {
      case "queued":
        // A new place in the queue is no new phase.
        if (this.#choice(event.choice).phase === "queued") return;
        this.#choice(event.choice).phase = "queued";
        metrics.moved(this, this.phase);
        log.write("queued", this.#id, { choice: event.choice, position: event.position });
        return;
      case "admitted":
        this.#choice(event.choice).phase = "prefill";
        metrics.moved(this, this.phase);
        metrics.admitted(event.promptTokens, event.cachedTokens);
        log.write("admitted", this.#id, {
          choice: event.choice,
          prompt_tokens: event.promptTokens,
          cached_tokens: event.cachedTokens,
          queue_ms: event.queueMs,
        });
        return;
      case "output":
        if (event.tokens.length > 0) this.#output(event.choice, event.tokens.length);
        return;
      case "choice-finished": {
        const choice = this.#choice(event.choice);
        choice.finishReason = event.reason;
        choice.stopText = event.stopText;
        return;
      }
      case "prefill":
        return;
      case "finished":
        this.#end("finished", null, event.reports);
        return;
      case "cancelled":
        this.#end("cancelled", null, event.reports);
        return;
      case "failed":
        this.fail(event.error, event.reports);
        return;
    }
  }

  /** Ends a request that failed, in the engine or before it. */
  fail({ code }: Pick<CodedErrorRecord, "code">, reports: readonly ChoiceReport[] = []): void {
    const refused = this.#choices.every(({ phase }) => phase === "received" || phase === "queued") && isRefusal(code);
    this.#end(refused ? "rejected" : "failed", code, reports);
  }

  #output(index: number, tokens: number): void {
    const { clock, log, metrics } = this.#parts;
    const choice = this.#choice(index);
    const nowMs = clock.monotonicMs();
    if (choice.lastOutputMs === null) {
      choice.phase = "decode";
      const sinceArrivalMs = nowMs - this.#arrivedMs;
      log.write("first_token", this.#id, { choice: index, first_token_ms: sinceArrivalMs });
      if (this.#firstTokenMs === null) metrics.firstToken(sinceArrivalMs);
      this.#firstTokenMs ??= sinceArrivalMs;
    } else {
      metrics.gap(nowMs - choice.lastOutputMs, tokens);
    }
    choice.lastOutputMs = nowMs;
  }

  #end(outcome: RequestOutcome, errorCode: ErrorCode | null, reports: readonly ChoiceReport[]): void {
    const { clock, log, metrics } = this.#parts;
    if (this.#ended) return;
    this.#ended = true;
    const durationMs = clock.monotonicMs() - this.#arrivedMs;
    const { phase } = this;
    const reasons = this.#choices.flatMap(({ finishReason }) => finishReason ?? []);
    metrics.ended(this, { protocol: this.#protocol, outcome, errorCode, phase, durationMs, reports, reasons });
    log.write(outcome, this.#id, {
      ...(errorCode === null ? {} : { error_code: errorCode, http_status: statusOf({ code: errorCode }) }),
      ...(outcome === "cancelled" ? { phase } : {}),
      duration_ms: durationMs,
      first_token_ms: this.#firstTokenMs,
      choices: reports.map((report) => this.#choiceRecord(report)),
    });
  }

  #choiceRecord({ choice, timings, ...counts }: ChoiceReport): object {
    const { finishReason, stopText } = this.#choice(choice);
    return {
      choice,
      finish_reason: finishReason,
      stopped_by_text: stopText !== null,
      prompt_tokens: counts.promptTokens,
      cached_tokens: counts.cachedTokens,
      cached_host_tokens: counts.hostTokens,
      cached_disk_tokens: counts.diskTokens,
      restored_bytes: counts.restoredBytes,
      possible_tokens: counts.possibleTokens,
      computed_tokens: counts.computedTokens,
      output_tokens: counts.outputTokens,
      reset_reason: counts.resetReason,
      diverged_at: counts.divergedAt,
      drafted_tokens: counts.draftedTokens,
      accepted_tokens: counts.acceptedTokens,
      mean_decode_batch: counts.meanDecodeBatch,
      lane: counts.lane,
      queue_ms: timings.queueMs,
      restore_ms: timings.restoreMs,
      prefill_ms: timings.prefillMs,
      decode_ms: timings.decodeMs,
    };
  }

  #choice(index: number): ChoiceProgress {
    const choice = this.#choices[index];
    invariant(choice, `request ${this.#id} has no choice ${index}`);
    return choice;
  }
}

/** Refused as it stood (4xx) or for lack of room or of an engine (429, 503); the rest is a failure. */
function isRefusal(code: ErrorCode): boolean {
  const status = statusOf({ code });
  return status < 500 || status === 503;
}
