/** How far a download is: measured once for all sources, shown as one moving line or as plain lines. */

import { type Clock, formatBytes } from "@kvasir/kit";

export interface PullProgress {
  /** What is loaded: a model or file name. */
  readonly label: string;
  readonly bytes: number;
  /** null while unknown. */
  readonly totalBytes: number | null;
  /** Over the last seconds; 0 before there is a measurement. */
  readonly bytesPerSecond: number;
  readonly source: string;
}

export type OnProgress = (progress: PullProgress) => void;

const REPORT_MS = 100;
const WINDOW_MS = 4_000;

/** Turns byte counts into progress reports, at most ten a second. */
export class ProgressMeter {
  readonly #clock: Clock;
  readonly #onProgress: OnProgress;
  readonly #fixed: { readonly label: string; readonly totalBytes: number | null; readonly source: string };
  readonly #samples: Array<{ readonly atMs: number; readonly bytes: number }> = [];
  #bytes = 0;
  #reportedMs = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, onProgress: OnProgress, fixed: { label: string; totalBytes: number | null; source: string }) {
    this.#clock = clock;
    this.#onProgress = onProgress;
    this.#fixed = fixed;
  }

  /** Bytes that were there before: they count as progress, not as speed. */
  start(bytes: number): void {
    this.#samples.length = 0;
    this.#set(bytes);
    this.report();
  }

  add(bytes: number): void {
    this.set(this.#bytes + bytes);
  }

  set(bytes: number): void {
    this.#set(bytes);
    if (this.#clock.monotonicMs() - this.#reportedMs >= REPORT_MS) this.report();
  }

  report(): void {
    this.#reportedMs = this.#clock.monotonicMs();
    this.#onProgress({ ...this.#fixed, bytes: this.#bytes, bytesPerSecond: this.#rate() });
  }

  #set(bytes: number): void {
    const atMs = this.#clock.monotonicMs();
    this.#bytes = bytes;
    this.#samples.push({ atMs, bytes });
    while (this.#samples.length > 2 && atMs - (this.#samples[1]?.atMs ?? atMs) > WINDOW_MS) this.#samples.shift();
  }

  #rate(): number {
    const first = this.#samples[0];
    const last = this.#samples.at(-1);
    if (!first || !last || last.atMs <= first.atMs) return 0;
    return Math.max(0, ((last.bytes - first.bytes) / (last.atMs - first.atMs)) * 1000);
  }
}

/** The part of a stream that the reporter needs; `process.stderr` is one. */
export interface ProgressOutput {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

export interface ProgressReporter {
  readonly onProgress: OnProgress;
  /** Ends the moving line. */
  finish(): void;
}

const PLAIN_LINE_MS = 5_000;

/** One line that is rewritten on a terminal; elsewhere a line at the start, every five seconds and at the end. */
export function progressReporter(output: ProgressOutput, clock: Clock): ProgressReporter {
  let openLine = false;
  let lastMs = Number.NEGATIVE_INFINITY;
  let last: PullProgress | null = null;
  const onProgress: OnProgress = (progress) => {
    const line = formatProgress(progress);
    if (output.isTTY) {
      const width = Math.max((output.columns ?? 80) - 1, 20);
      output.write(`\r\x1b[K${line.slice(0, width)}`);
      openLine = true;
      return;
    }
    const nowMs = clock.monotonicMs();
    const isNew = last === null || last.label !== progress.label || last.source !== progress.source;
    const isDone = progress.bytes === progress.totalBytes && last?.bytes !== progress.bytes;
    if (!isNew && !isDone && (nowMs - lastMs < PLAIN_LINE_MS || last?.bytes === progress.bytes)) return;
    output.write(`${line}\n`);
    lastMs = nowMs;
    last = progress;
  };
  const finish = (): void => {
    if (openLine) output.write("\n");
    openLine = false;
  };
  return { onProgress, finish };
}

/** `smollm2-135m-instruct  45.3 MiB of 93.8 MiB  48 %  12.1 MiB/s  PyPI` */
export function formatProgress({ label, bytes, totalBytes, bytesPerSecond, source }: PullProgress): string {
  const amount = totalBytes === null ? formatBytes(bytes) : `${formatBytes(bytes)} of ${formatBytes(totalBytes)}`;
  const percent = totalBytes ? `${Math.min(100, Math.floor((bytes / totalBytes) * 100))} %` : "";
  const rate = bytesPerSecond > 0 ? `${formatBytes(bytesPerSecond)}/s` : "";
  return [label, amount, percent, rate, source].filter((part) => part !== "").join("  ");
}
