/**
 * libllama's log, caught in place of its writing to standard error: the last lines are kept, so that a failed load can say
 * libllama's own reason.
 *
 * The callback is a JavaScript function. From a thread other than ours koffi queues it to the event loop and the thread waits,
 * so it must never be called by a thread that a synchronous call waits for. That holds because everything that logs from
 * several threads (loading, creating a context) is called with `async`, and compute threads do not log.
 */

import koffi, { type TypeObject } from "koffi";
import type { NativeFunctions } from "./native-functions.ts";
import { type Address, constants } from "./structs.ts";

export type LogLevel = "info" | "warn" | "error";

export interface LogLine {
  readonly level: LogLevel;
  readonly text: string;
}

/** Position in the log: lines after it have a greater one. */
export type LogMark = number;

const keptLines = 1000;
const callbackType: TypeObject = koffi.pointer(
  koffi.proto(koffi.types.void, [koffi.types.int32, koffi.types.str, koffi.pointer(koffi.types.void)]),
);

export class LibraryLog {
  readonly #lines: LogLine[] = [];
  #dropped = 0;
  #unfinished = "";
  #level: LogLevel | null = "info";
  readonly #listeners = new Set<(line: LogLine) => void>();

  mark(): LogMark {
    return this.#dropped + this.#lines.length;
  }

  linesSince(mark: LogMark): readonly LogLine[] {
    return this.#lines.slice(Math.max(0, mark - this.#dropped));
  }

  /** What libllama said went wrong: its error lines without the function names in front. */
  reasonSince(mark: LogMark): string {
    const errors = this.linesSince(mark).filter((line) => line.level === "error");
    return [...new Set(errors.map((line) => line.text.replace(/^[\w:~]+: /, "")))].join("; ");
  }

  /** Returns what ends the listening. */
  listen(listener: (line: LogLine) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** One call of the C callback: a line, a part of a line, or several lines. */
  write(level: number, text: string): void {
    if (level !== constants.GGML_LOG_LEVEL_CONT) this.#level = levelOf(level);
    const parts = (this.#unfinished + text).split("\n");
    this.#unfinished = parts.pop() ?? "";
    for (const part of parts)
      if (part.trim() !== "" && this.#level !== null) this.#add({ level: this.#level, text: part.trimEnd() });
  }

  #add(line: LogLine): void {
    this.#lines.push(line);
    if (this.#lines.length > keptLines) {
      this.#lines.shift();
      this.#dropped++;
    }
    for (const listener of this.#listeners) listener(line);
  }
}

/**
 * Directs the log of the whole library to `log`, for good. At the end of the process the library's own log comes back, since
 * C destructors may still write when JavaScript no longer runs.
 */
export function attachLog(native: NativeFunctions, log: LibraryLog): void {
  const callback: Address = koffi.register((level: number, text: string | null) => log.write(level, text ?? ""), callbackType);
  native.llama_log_set(callback, null);
  process.once("exit", () => native.llama_log_set(null, null));
}

/** Debug lines are dropped: there are hundreds per context. */
function levelOf(level: number): LogLevel | null {
  switch (level) {
    case constants.GGML_LOG_LEVEL_ERROR:
      return "error";
    case constants.GGML_LOG_LEVEL_WARN:
      return "warn";
    case constants.GGML_LOG_LEVEL_INFO:
      return "info";
    default:
      return null;
  }
}
