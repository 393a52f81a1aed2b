/**
 * Renders `GenerationEvent`s as an OpenAI response: a stream of chunks, or one body. What differs between Chat Completions
 * and Completions is a `Dialect`; what is the same (order, indices, usage, timings) is here.
 *
 *   stream   per choice: opening, deltas…, closing      then, if asked for: the usage chunk with `choices: []`
 *            the last chunk carries `timings`; with include_usage every other chunk has `usage: null`
 */

import { invariant } from "@kvasir/kit";
import type { ChoiceReport, GenerationEvent, OutputLogprob, Usage } from "./generation.ts";
import type { OutputOptions } from "./openai-fields.ts";
import { openAiUsage, type OpenAiUsage, type TimedCounts, type TimingsBody, timingsBody } from "./openai-usage.ts";

export interface ResponseFacts {
  readonly id: string;
  readonly model: string;
  readonly createdSeconds: number;
  /** What answers: a different value says that the same seed may give another text. */
  readonly fingerprint: string;
}

export type FinishReason = "stop" | "length";

/** Everything that one choice has sent. */
export interface CollectedChoice {
  readonly index: number;
  readonly text: string;
  readonly logprobs: readonly OutputLogprob[];
  readonly reason: FinishReason;
}

export interface Dialect {
  readonly bodyObject: string;
  readonly chunkObject: string;
  /** The `choices` entry that opens a choice, or null when the first delta does. */
  opening(index: number): object | null;
  /** @param logprobs null when the request did not ask for them */
  delta(index: number, text: string, logprobs: readonly OutputLogprob[] | null): object;
  closing(index: number, reason: FinishReason): object;
  /** An entry of the body that is not streamed. */
  whole(choice: CollectedChoice, wantsLogprobs: boolean): object;
}

export interface Chunk {
  readonly id: string;
  readonly object: string;
  readonly created: number;
  readonly model: string;
  readonly system_fingerprint: string;
  readonly choices: readonly object[];
  readonly usage?: OpenAiUsage | null;
  readonly timings?: TimingsBody;
  readonly prompt_progress?: {
    readonly total: number;
    readonly cache: number;
    readonly processed: number;
    readonly time_ms: number;
  };
}

/** What the stream knows of a choice while it runs, for `timings_per_token` and `return_progress`. */
export interface LiveChoice extends TimedCounts {
  /** Milliseconds since the choice was admitted. */
  readonly sinceAdmissionMs: number;
}

export class OpenAiStream {
  readonly #facts: ResponseFacts;
  readonly #dialect: Dialect;
  readonly #options: OutputOptions;
  readonly #wantsLogprobs: boolean;
  readonly #live: (choice: number) => LiveChoice;
  readonly #opened = new Set<number>();
  /** The chunk that may turn out to be the last one. */
  #held: Chunk | null = null;

  /** @param live asked only when the request wants per-token timings or progress */
  constructor(
    facts: ResponseFacts,
    dialect: Dialect,
    options: OutputOptions,
    wantsLogprobs: boolean,
    live: (choice: number) => LiveChoice,
  ) {
    this.#facts = facts;
    this.#dialect = dialect;
    this.#options = options;
    this.#wantsLogprobs = wantsLogprobs;
    this.#live = live;
  }

  /** The chunks that may be sent now. After `finished` there is nothing more; failures are not rendered here. */
  chunksOf(event: GenerationEvent): Chunk[] {
    switch (event.kind) {
      case "prefill":
        return this.#options.returnProgress ? [this.#progress(event.choice, event.processedTokens, event.totalTokens)] : [];
      case "output":
        return this.#release(this.#output(event.choice, event.text, event.logprobs ?? []));
      case "choice-finished": {
        const chunks = this.#release(this.#open(event.choice));
        this.#held = this.#chunk([this.#dialect.closing(event.choice, event.reason)]);
        return chunks;
      }
      case "finished":
        return this.#end(event.usage, event.reports);
      default:
        return [];
    }
  }

  #output(choice: number, text: string, logprobs: readonly OutputLogprob[]): Chunk[] {
    const chunks = this.#open(choice);
    // Text that is held back is not a chunk: it has nothing to say yet.
    if (text === "" && logprobs.length === 0) return chunks;
    const delta = this.#chunk([this.#dialect.delta(choice, text, this.#wantsLogprobs ? logprobs : null)]);
    chunks.push(this.#options.timingsPerToken ? { ...delta, timings: timingsBody(this.#live(choice)) } : delta);
    return chunks;
  }

  #progress(choice: number, processed: number, total: number): Chunk {
    const { cachedTokens, sinceAdmissionMs } = this.#live(choice);
    const chunk = this.#chunk([this.#dialect.delta(choice, "", null)]);
    return { ...chunk, prompt_progress: { total, cache: cachedTokens, processed, time_ms: sinceAdmissionMs } };
  }

  #open(choice: number): Chunk[] {
    if (this.#opened.has(choice)) return [];
    this.#opened.add(choice);
    const opening = this.#dialect.opening(choice);
    return opening === null ? [] : [this.#chunk([opening])];
  }

  #release(chunks: Chunk[]): Chunk[] {
    const released = this.#held === null ? chunks : [this.#held, ...chunks];
    this.#held = null;
    return released;
  }

  #end(usage: Usage, reports: readonly ChoiceReport[]): Chunk[] {
    const usageChunk = this.#options.includeUsage ? [{ ...this.#chunk([]), usage: openAiUsage(usage) }] : [];
    const chunks = this.#release(usageChunk);
    const last = chunks.pop();
    const report = reports.at(-1);
    if (last) chunks.push(report ? { ...last, timings: timingsBody(report) } : last);
    return chunks;
  }

  #chunk(choices: readonly object[]): Chunk {
    return {
      id: this.#facts.id,
      object: this.#dialect.chunkObject,
      created: this.#facts.createdSeconds,
      model: this.#facts.model,
      system_fingerprint: this.#facts.fingerprint,
      choices,
      ...(this.#options.includeUsage ? { usage: null } : {}),
    };
  }
}

interface OpenChoice {
  text: string;
  readonly logprobs: OutputLogprob[];
  reason: FinishReason | null;
}

/** Collects the events of a request that is not streamed. */
export class OpenAiBody {
  readonly #facts: ResponseFacts;
  readonly #dialect: Dialect;
  readonly #wantsLogprobs: boolean;
  readonly #choices = new Map<number, OpenChoice>();

  constructor(facts: ResponseFacts, dialect: Dialect, wantsLogprobs: boolean) {
    this.#facts = facts;
    this.#dialect = dialect;
    this.#wantsLogprobs = wantsLogprobs;
  }

  take(event: GenerationEvent): void {
    if (event.kind === "output") {
      const choice = this.#choice(event.choice);
      choice.text += event.text;
      if (event.logprobs) choice.logprobs.push(...event.logprobs);
    } else if (event.kind === "choice-finished") {
      this.#choice(event.choice).reason = event.reason;
    }
  }

  body(usage: Usage, reports: readonly ChoiceReport[]): object {
    const report = reports.at(-1);
    const choices = [...this.#choices.entries()].sort(([a], [b]) => a - b);
    return {
      id: this.#facts.id,
      object: this.#dialect.bodyObject,
      created: this.#facts.createdSeconds,
      model: this.#facts.model,
      system_fingerprint: this.#facts.fingerprint,
      choices: choices.map(([index, { text, logprobs, reason }]) => {
        invariant(reason !== null, `choice ${index} has not finished`);
        return this.#dialect.whole({ index, text, logprobs, reason }, this.#wantsLogprobs);
      }),
      usage: openAiUsage(usage),
      ...(report ? { timings: timingsBody(report) } : {}),
    };
  }

  #choice(index: number): OpenChoice {
    let choice = this.#choices.get(index);
    if (!choice) {
      choice = { text: "", logprobs: [], reason: null };
      this.#choices.set(index, choice);
    }
    return choice;
  }
}
