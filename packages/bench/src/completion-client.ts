/**
 * One streamed `/v1/completions` call with exact prompt tokens, timed, on a connection of its own. Works with any
 * OpenAI-compatible server.
 *
 * Times are milliseconds since dispatch (the moment before the request's bytes go to the socket). An event counts as output when it carries
 * text; role-only events, empty deltas, usage and comments do not.
 */

import { request as httpRequest } from "node:http";
import { type Clock, CodedError, systemClock } from "@kvasir/kit";
import { SseDecoder } from "@kvasir/wire";
import { readServerTimings, type ServerTimings } from "./server-timings.ts";

export interface CompletionTarget {
  /** `http://127.0.0.1:8484` */
  readonly baseUrl: string;
  readonly model: string;
  readonly apiKey?: string;
  readonly clock?: Clock;
}

export interface CompletionCall {
  readonly promptTokens: readonly number[];
  readonly maxTokens: number;
  /** Ends the call from outside; the record then has `aborted`. */
  readonly signal?: AbortSignal;
  /** Called for every output event with its time since dispatch. */
  readonly onOutput?: (atMs: number) => void;
}

export interface CompletionRecord {
  readonly status: number;
  /** null when the stream ended as it should. */
  readonly error: string | null;
  readonly aborted: boolean;
  /** Clock reading at dispatch, to place records of one run beside each other. */
  readonly dispatchedAtMs: number;
  /** Time of each output event since dispatch. The first is the time to first token. */
  readonly outputAtMs: readonly number[];
  /** End of the response since dispatch. */
  readonly endMs: number;
  readonly promptTokens: number | null;
  /** null: the server does not report it. Never taken for 0. */
  readonly cachedTokens: number | null;
  readonly outputTokens: number | null;
  readonly timings: ServerTimings | null;
}

interface StreamState {
  status: number;
  error: string | null;
  done: boolean;
  outputAtMs: number[];
  promptTokens: number | null;
  cachedTokens: number | null;
  outputTokens: number | null;
  timings: ServerTimings | null;
}

/** Greedy, past end-of-generation tokens, with usage. Never rejects: failures are part of the record. */
export function complete(target: CompletionTarget, call: CompletionCall): Promise<CompletionRecord> {
  const clock = target.clock ?? systemClock;
  const body = JSON.stringify({
    model: target.model,
    prompt: call.promptTokens,
    max_tokens: call.maxTokens,
    temperature: 0,
    ignore_eos: true,
    stream: true,
    stream_options: { include_usage: true },
  });
  const state: StreamState = {
    status: 0,
    error: null,
    done: false,
    outputAtMs: [],
    promptTokens: null,
    cachedTokens: null,
    outputTokens: null,
    timings: null,
  };
  return new Promise((resolve) => {
    let dispatchedAtMs = 0;
    const settle = (error: string | null) => {
      resolve({
        status: state.status,
        error: state.error ?? error ?? (state.done ? null : "the stream ended without [DONE]"),
        aborted: call.signal?.aborted ?? false,
        dispatchedAtMs,
        outputAtMs: state.outputAtMs,
        endMs: clock.monotonicMs() - dispatchedAtMs,
        promptTokens: state.promptTokens,
        cachedTokens: state.cachedTokens,
        outputTokens: state.outputTokens,
        timings: state.timings,
      });
    };
    const request = httpRequest(
      new URL("/v1/completions", target.baseUrl),
      {
        method: "POST",
        agent: false,
        ...(call.signal ? { signal: call.signal } : {}),
        headers: {
          "content-type": "application/json",
          "content-length": Buffer.byteLength(body),
          ...(target.apiKey ? { authorization: `Bearer ${target.apiKey}` } : {}),
        },
      },
      (response) => {
        state.status = response.statusCode ?? 0;
        const decoder = new SseDecoder();
        let errorBody = "";
        response.on("data", (bytes: Buffer) => {
          if (state.status !== 200) {
            errorBody += bytes.toString("utf8");
            return;
          }
          const atMs = clock.monotonicMs() - dispatchedAtMs;
          for (const item of decoder.push(bytes)) {
            if (item.kind === "data" && takeEvent(state, item.data, atMs)) call.onOutput?.(atMs);
          }
        });
        response.on("end", () => settle(state.status === 200 ? null : `HTTP ${state.status}: ${errorBody.slice(0, 400)}`));
        response.on("error", (error) => settle(error.message));
      },
    );
    request.on("error", (error) => settle(error.message));
    dispatchedAtMs = clock.monotonicMs();
    request.end(body);
  });
}

/** Folds one event into the state; true when it carried output. */
function takeEvent(state: StreamState, data: string, atMs: number): boolean {
  if (data === "[DONE]") {
    state.done = true;
    return false;
  }
  let event: CompletionEvent;
  try {
    event = JSON.parse(data) as CompletionEvent;
  } catch {
    // the server's fault, and the record says so
    state.error ??= `not JSON: ${data.slice(0, 200)}`;
    return false;
  }
  if (event.error !== undefined) state.error ??= JSON.stringify(event.error);
  state.promptTokens = event.usage?.prompt_tokens ?? state.promptTokens;
  state.outputTokens = event.usage?.completion_tokens ?? state.outputTokens;
  const cacheCount = (event.timings as { cache_n?: number } | undefined)?.cache_n;
  state.cachedTokens = event.usage?.prompt_tokens_details?.cached_tokens ?? cacheCount ?? state.cachedTokens;
  state.timings = readServerTimings(event.timings) ?? state.timings;
  const carriesText = (event.choices?.[0]?.text ?? "") !== "";
  if (carriesText) state.outputAtMs.push(atMs);
  return carriesText;
}

interface CompletionEvent {
  readonly error?: unknown;
  readonly choices?: ReadonlyArray<{ readonly text?: string }>;
  readonly usage?: {
    readonly prompt_tokens?: number;
    readonly completion_tokens?: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number };
  } | null;
  readonly timings?: unknown;
}

/** First output event since dispatch, or NaN when nothing came. */
export function firstTokenMs(record: CompletionRecord): number {
  return record.outputAtMs[0] ?? Number.NaN;
}

/** Last output event since dispatch, or NaN when nothing came. */
export function lastTokenMs(record: CompletionRecord): number {
  return record.outputAtMs.at(-1) ?? Number.NaN;
}

/** Pauses between consecutive output events. */
export function gapsMs(outputAtMs: readonly number[]): number[] {
  return outputAtMs.slice(1).map((atMs, index) => atMs - (outputAtMs[index] ?? atMs));
}

/** Name of the first model that the server lists. */
export async function firstModelName(baseUrl: string): Promise<string> {
  const response = await fetch(new URL("/v1/models", baseUrl));
  const list = (await response.json()) as { data?: ReadonlyArray<{ id?: string }> };
  const name = list.data?.[0]?.id;
  if (name === undefined) throw new CodedError("bench_failed", `${baseUrl}/v1/models lists no model (HTTP ${response.status})`);
  return name;
}
