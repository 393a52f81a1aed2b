/**
 * One request inside the engine: an engine request per choice, their events merged into one ordered stream that ends with
 * exactly one terminal event. Owns the engine requests until each has ended; after an abort it waits for their ends, so that
 * what they cost is known.
 */

import type { EngineClient, EngineEvent, EngineRequest, EngineResult, TokenLogprob } from "@kvasir/engine";
import { assertNever, CodedError, toErrorRecord } from "@kvasir/kit";
import type { ChoiceReport, GenerationEvent, OutputLogprob, Usage } from "@kvasir/wire";
import { EventQueue } from "./event-queue.ts";
import type { WaitingLine } from "./waiting-line.ts";

interface QueuedEvent {
  readonly event: GenerationEvent;
  /** Called when the reader has taken the event. */
  readonly taken: (() => void) | null;
}

export class GenerationRun {
  readonly #client: EngineClient;
  readonly #requests: readonly EngineRequest[];
  readonly #choicesPerPrompt: number;
  readonly #line: WaitingLine;
  /** How each choice that waits leaves the line. */
  readonly #leaveLine = new Map<number, () => void>();
  readonly #queue = new EventQueue<QueuedEvent>();
  readonly #open = new Set<number>();
  readonly #reports: ChoiceReport[] = [];
  #over = false;
  #abortReason: unknown = null;

  /** @param requests one a choice, all choices of the first prompt first */
  constructor(client: EngineClient, requests: readonly EngineRequest[], choicesPerPrompt: number, line: WaitingLine) {
    this.#client = client;
    this.#requests = requests;
    this.#choicesPerPrompt = choicesPerPrompt;
    this.#line = line;
  }

  /** Submits everything. To be read once. */
  async *events(signal: AbortSignal): AsyncGenerator<GenerationEvent, void, undefined> {
    const abort = (): void => this.#abort(signal.reason);
    signal.addEventListener("abort", abort);
    try {
      for (const [choice, request] of this.#requests.entries()) {
        this.#open.add(choice);
        this.#client.submit(request, (event) => this.#receive(choice, event));
      }
      if (signal.aborted) abort();
      for (;;) {
        const { event, taken } = await this.#queue.shift();
        yield event;
        taken?.();
        if (event.kind === "finished" || event.kind === "failed" || event.kind === "cancelled") return;
      }
    } finally {
      signal.removeEventListener("abort", abort);
      this.#over = true;
      this.#cancelOpen();
      for (const leave of this.#leaveLine.values()) leave();
    }
  }

  #receive(choice: number, event: EngineEvent): void {
    if (event.kind === "finished" || event.kind === "failed") {
      this.#open.delete(choice);
      this.#reports.push(reportOf(choice, event.result));
    }
    if (event.kind !== "queued") this.#leaveLine.get(choice)?.();
    if (this.#over) return;
    switch (event.kind) {
      case "queued":
        this.#push({ kind: "queued", choice, position: event.position });
        this.#leaveLine.set(
          choice,
          this.#line.join((position) => this.#push({ kind: "queued", choice, position })),
        );
        return;
      case "admitted": {
        const promptTokens = this.#requests[choice]?.promptTokens.length ?? 0;
        this.#push({ kind: "admitted", choice, promptTokens, cachedTokens: event.cachedTokens, queueMs: event.queueMs });
        return;
      }
      case "prefill":
        this.#push({ kind: "prefill", choice, processedTokens: event.processedTokens, totalTokens: event.totalTokens });
        return;
      case "output": {
        const { id, text, tokens } = event;
        const logprobs = event.logprobs ? { logprobs: event.logprobs.map(outputLogprob) } : {};
        this.#push({ kind: "output", choice, text, tokens, ...logprobs }, () => this.#client.consumed(id, tokens.length));
        return;
      }
      case "finished":
        this.#finish(choice, event.result);
        return;
      case "failed":
        this.#fail(fromRecordOrAbort(event.error, this.#abortReason));
        return;
      default:
        assertNever(event);
    }
  }

  #finish(choice: number, result: EngineResult): void {
    switch (result.reason) {
      case "cancelled":
        // Not by us: the engine gave up on a reader, or is closing.
        if (this.#abortReason === null) this.#fail(readerStalled());
        else if (this.#open.size === 0) this.#endAborted(this.#abortReason);
        return;
      case "end":
      case "stop":
        this.#push({ kind: "choice-finished", choice, reason: "stop", stopText: result.stopText });
        break;
      case "length":
      case "window":
        this.#push({ kind: "choice-finished", choice, reason: "length", stopText: null });
        break;
      default:
        assertNever(result.reason);
    }
    if (this.#open.size > 0) return;
    if (this.#abortReason === null) this.#end({ kind: "finished", usage: this.#usage(), reports: this.#reports });
    else this.#endAborted(this.#abortReason);
  }

  #abort(reason: unknown): void {
    this.#abortReason ??= reason;
    this.#cancelOpen();
  }

  #endAborted(reason: unknown): void {
    if (reason instanceof CodedError) this.#end({ kind: "failed", error: toErrorRecord(reason), reports: this.#reports });
    else this.#end({ kind: "cancelled", reports: this.#reports });
  }

  #fail(error: CodedError): void {
    this.#end({ kind: "failed", error: toErrorRecord(error), reports: this.#reports });
    this.#cancelOpen();
  }

  #end(event: Extract<GenerationEvent, { readonly kind: "finished" | "failed" | "cancelled" }>): void {
    this.#over = true;
    // The others that end later still add their reports.
    this.#push({ ...event, reports: [...event.reports] });
    for (const leave of this.#leaveLine.values()) leave();
  }

  #push(event: GenerationEvent, taken: (() => void) | null = null): void {
    this.#queue.push({ event, taken });
  }

  #cancelOpen(): void {
    for (const choice of this.#open) {
      const request = this.#requests[choice];
      if (request) this.#client.cancel(request.id);
    }
  }

  /** A prompt counts once, as its first choice found it, however many choices it has. */
  #usage(): Usage {
    const firsts = this.#reports.filter(({ choice }) => choice % this.#choicesPerPrompt === 0);
    return {
      promptTokens: total(firsts, (report) => report.promptTokens),
      cachedTokens: total(firsts, (report) => report.cachedTokens),
      outputTokens: total(this.#reports, (report) => report.outputTokens),
    };
  }
}

function total(reports: readonly ChoiceReport[], count: (report: ChoiceReport) => number): number {
  return reports.reduce((sum, report) => sum + count(report), 0);
}

function reportOf(choice: number, result: EngineResult): ChoiceReport {
  const { reason: _reason, stopText: _stopText, ...report } = result;
  return { choice, ...report };
}

function fromRecordOrAbort(
  record: { readonly code: CodedError["code"]; readonly message: string },
  abortReason: unknown,
): CodedError {
  return abortReason instanceof CodedError ? abortReason : new CodedError(record.code, record.message);
}

function readerStalled(): CodedError {
  return new CodedError(
    "request_timeout",
    "The reader of this stream took nothing for too long while output was waiting, so the request was ended. Read faster or ask for less.",
  );
}

const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

function outputLogprob({ bytes, logprob, top }: TokenLogprob): OutputLogprob {
  return {
    token: decoder.decode(bytes),
    bytes: [...bytes],
    logprob,
    top: top.map((other) => ({ token: decoder.decode(other.bytes), bytes: [...other.bytes], logprob: other.logprob })),
  };
}
