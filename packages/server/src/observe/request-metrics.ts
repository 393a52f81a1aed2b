/** What requests cost and how they ended. Driven by `RequestTrace`. */

import type { ErrorCode } from "@kvasir/kit";
import type { ChoiceReport, GenerationRequest } from "@kvasir/wire";
import type { MetricRegistry } from "./metric-registry.ts";

export type RequestPhase = "received" | "queued" | "prefill" | "decode";
export type RequestOutcome = "finished" | "failed" | "cancelled" | "rejected";

export interface EndedRequest {
  readonly protocol: string;
  readonly outcome: RequestOutcome;
  readonly errorCode: ErrorCode | null;
  /** Where the request was when it ended. */
  readonly phase: RequestPhase;
  readonly durationMs: number;
  readonly reports: readonly ChoiceReport[];
  /** Finish reason of each choice that has one. */
  readonly reasons: readonly string[];
}

/** Upper bounds in seconds; the long ones reach the two hours of vLLM's boards. */
const waitSeconds = [0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120, 240, 480, 960, 1920, 3840, 7680];
const tokenSeconds = [0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const tokenCounts = [1, 8, 32, 128, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144];
const choiceCounts = [1, 2, 4, 8, 16, 32, 64, 128];

export class RequestMetrics {
  readonly #waiting = new Set<object>();
  readonly #running = new Set<object>();
  readonly #counters;
  readonly #histograms;

  constructor(registry: MetricRegistry) {
    const counter = (help: string, names: string[], labels: string[] = []) => registry.counter({ help, names, labels });
    const histogram = (help: string, buckets: readonly number[], ...names: string[]) =>
      registry.histogram({ help, buckets, names });
    this.#counters = {
      requests: counter("Requests by how they ended.", ["kvasir_requests_total"], ["protocol", "outcome"]),
      success: counter("Choices that finished, by reason.", ["vllm:request_success_total"], ["finished_reason"]),
      cancelled: counter("Requests whose client left, by the phase they were in.", ["kvasir_cancelled_total"], ["phase"]),
      rejections: counter("Requests that were refused, by error code.", ["kvasir_rejections_total"], ["code"]),
      failures: counter("Requests that failed, by error code.", ["kvasir_failures_total"], ["code"]),
      pendingTimeouts: counter("Requests that waited longer than allowed.", ["kvasir_pending_timeouts_total"]),
      resets: counter("Prompts of which tokens were computed again, by reason.", ["kvasir_resets_total"], ["reason"]),
      promptTokens: counter("Prompt tokens by where their KV came from.", ["kvasir_prompt_tokens_total"], ["source"]),
      vllmPromptTokens: counter("Prompt tokens.", ["vllm:prompt_tokens_total"]),
      outputTokens: counter("Generated tokens.", ["kvasir_generated_tokens_total", "vllm:generation_tokens_total"]),
      cacheQueries: counter("Prompt tokens that were looked up.", ["vllm:prefix_cache_queries_total"]),
      cacheHits: counter("Prompt tokens whose KV existed.", ["vllm:prefix_cache_hits_total"]),
      possible: counter("Prompt tokens that an infinite cache would have reused.", ["kvasir_possible_tokens_total"]),
      restoredBytes: counter("Bytes of KV copied into lanes.", ["kvasir_restored_bytes_total"]),
      drafted: counter("Tokens that speculation guessed.", [
        "kvasir_drafted_tokens_total",
        "vllm:spec_decode_num_draft_tokens_total",
      ]),
      accepted: counter("Guessed tokens that were right.", [
        "kvasir_accepted_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_total",
      ]),
    };
    const edge = "measured in the server process, tokenization included";
    const engine = "on the engine's clock";
    this.#histograms = {
      firstToken: histogram(
        `Seconds from a request to its first token, ${edge}.`,
        waitSeconds,
        "kvasir_time_to_first_token_seconds",
        "vllm:time_to_first_token_seconds",
      ),
      gap: histogram(
        `Seconds between two tokens of a choice, ${edge}.`,
        tokenSeconds,
        "kvasir_inter_token_seconds",
        "vllm:inter_token_latency_seconds",
      ),
      request: histogram(
        `Seconds from a request to its end, ${edge}.`,
        waitSeconds,
        "kvasir_request_seconds",
        "vllm:e2e_request_latency_seconds",
      ),
      queue: histogram(
        `Seconds in the queue, ${engine}.`,
        waitSeconds,
        "kvasir_queue_seconds",
        "vllm:request_queue_time_seconds",
      ),
      restore: histogram(`Seconds of copying stored KV, ${engine}.`, waitSeconds, "kvasir_restore_seconds"),
      prefill: histogram(
        `Seconds from lane to first token, ${engine}.`,
        waitSeconds,
        "kvasir_prefill_seconds",
        "vllm:request_prefill_time_seconds",
      ),
      decode: histogram(
        `Seconds from first token to last, ${engine}.`,
        waitSeconds,
        "kvasir_decode_seconds",
        "vllm:request_decode_time_seconds",
      ),
      inference: histogram(`Seconds from lane to last token, ${engine}.`, waitSeconds, "vllm:request_inference_time_seconds"),
      promptTokens: histogram(
        "Prompt tokens of a choice.",
        tokenCounts,
        "kvasir_request_prompt_tokens",
        "vllm:request_prompt_tokens",
      ),
      outputTokens: histogram(
        "Generated tokens of a choice.",
        tokenCounts,
        "kvasir_request_generated_tokens",
        "vllm:request_generation_tokens",
      ),
      maxTokens: histogram("max_tokens of requests that set it.", tokenCounts, "vllm:request_params_max_tokens"),
      choices: histogram("n of a request.", choiceCounts, "vllm:request_params_n"),
    };
  }

  /** Requests that have come and not ended. */
  get inFlight(): { readonly running: number; readonly waiting: number } {
    return { running: this.#running.size, waiting: this.#waiting.size };
  }

  arrived({ maxTokens, choices }: Pick<GenerationRequest, "maxTokens" | "choices">): void {
    if (maxTokens !== undefined) this.#histograms.maxTokens.observe(maxTokens);
    this.#histograms.choices.observe(choices);
  }

  /** @param request identity only. It runs once none of its choices waits */
  moved(request: object, phase: RequestPhase): void {
    const waits = phase === "queued" || phase === "received";
    (waits ? this.#waiting : this.#running).add(request);
    (waits ? this.#running : this.#waiting).delete(request);
  }

  admitted(promptTokens: number, cachedTokens: number): void {
    this.#counters.cacheQueries.inc(promptTokens);
    this.#counters.cacheHits.inc(cachedTokens);
  }

  firstToken(milliseconds: number): void {
    this.#histograms.firstToken.observe(milliseconds / 1000);
  }

  /** @param tokens that came together after the gap */
  gap(milliseconds: number, tokens: number): void {
    for (let token = 0; token < tokens; token++) this.#histograms.gap.observe(milliseconds / 1000 / tokens);
  }

  ended(request: object, { protocol, outcome, errorCode, phase, durationMs, reports, reasons }: EndedRequest): void {
    this.#waiting.delete(request);
    this.#running.delete(request);
    this.#counters.requests.inc(1, { protocol, outcome });
    if (outcome === "cancelled") this.#counters.cancelled.inc(1, { phase });
    if (outcome === "rejected") this.#counters.rejections.inc(1, { code: errorCode ?? "" });
    if (outcome === "failed") this.#counters.failures.inc(1, { code: errorCode ?? "" });
    if (errorCode === "queue_timeout") this.#counters.pendingTimeouts.inc();
    if (outcome === "finished") this.#histograms.request.observe(durationMs / 1000);
    for (const report of reports) this.#choiceEnded(report, outcome === "finished");
    for (const reason of reasons) this.#counters.success.inc(1, { finished_reason: reason });
  }

  /** A request that was refused before it could be read as one. */
  unreadable(protocol: string, code: ErrorCode): void {
    this.#counters.requests.inc(1, { protocol, outcome: "rejected" });
    this.#counters.rejections.inc(1, { code });
  }

  #choiceEnded(report: ChoiceReport, complete: boolean): void {
    // What never had a lane has cost nothing.
    if (report.lane === null) return;
    const { queueMs, restoreMs, prefillMs, decodeMs } = report.timings;
    this.#counters.vllmPromptTokens.inc(report.promptTokens);
    this.#counters.outputTokens.inc(report.outputTokens);
    this.#counters.drafted.inc(report.draftedTokens);
    this.#counters.accepted.inc(report.acceptedTokens);
    this.#counters.promptTokens.inc(report.computedTokens, { source: "computed" });
    const { cachedTokens, hostTokens, diskTokens } = report;
    this.#counters.promptTokens.inc(cachedTokens - hostTokens - diskTokens, { source: "device" });
    this.#counters.promptTokens.inc(hostTokens, { source: "host" });
    this.#counters.promptTokens.inc(diskTokens, { source: "disk" });
    this.#counters.possible.inc(report.possibleTokens);
    this.#counters.restoredBytes.inc(report.restoredBytes);
    if (report.resetReason !== "none" && report.resetReason !== "cold")
      this.#counters.resets.inc(1, { reason: report.resetReason });
    this.#histograms.queue.observe(queueMs / 1000);
    this.#histograms.restore.observe(restoreMs / 1000);
    if (!complete) return;
    this.#histograms.prefill.observe(prefillMs / 1000);
    this.#histograms.decode.observe(decodeMs / 1000);
    this.#histograms.inference.observe((restoreMs + prefillMs + decodeMs) / 1000);
    this.#histograms.promptTokens.observe(report.promptTokens);
    this.#histograms.outputTokens.observe(report.outputTokens);
  }
}
