/** The phases that a server reports from its own clocks, whoever the server is. */

/** Milliseconds. A phase that the server does not report is 0, and `source` says how much of it to believe. */
export interface ServerTimings {
  readonly source: "kvasir" | "llama-server";
  readonly queueMs: number;
  readonly restoreMs: number;
  /** From a free lane (slot) to the first sampled token. */
  readonly prefillMs: number;
  /** From the first sampled token to the last. */
  readonly decodeMs: number;
}

/** Reads the `timings` member of a response; null when it is absent or of an unknown shape. */
export function readServerTimings(timings: unknown): ServerTimings | null {
  if (typeof timings !== "object" || timings === null) return null;
  const fields = timings as Readonly<Record<string, unknown>>;
  const milliseconds = (name: string) => {
    const value = fields[name];
    return typeof value === "number" && Number.isFinite(value) ? value : undefined;
  };
  const prefillMs = milliseconds("prefill_ms");
  const decodeMs = milliseconds("decode_ms");
  if (prefillMs !== undefined && decodeMs !== undefined) {
    const queueMs = milliseconds("queue_ms") ?? 0;
    return { source: "kvasir", queueMs, restoreMs: milliseconds("restore_ms") ?? 0, prefillMs, decodeMs };
  }
  const promptMs = milliseconds("prompt_ms");
  const predictedMs = milliseconds("predicted_ms");
  if (promptMs === undefined || predictedMs === undefined) return null;
  return { source: "llama-server", queueMs: 0, restoreMs: 0, prefillMs: promptMs, decodeMs: predictedMs };
}

/** Queue, restore and prefill: the engine's part of the time to the first token. */
export function engineFirstTokenMs(timings: ServerTimings): number {
  return timings.queueMs + timings.restoreMs + timings.prefillMs;
}
