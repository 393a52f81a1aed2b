/**
 * One server-sent event response. Writes wait until the socket has taken the bytes, so that the reader sets the pace; after
 * the client has gone they are dropped. A comment goes out whenever nothing was written for a while.
 */

import type { OutgoingHttpHeader, ServerResponse } from "node:http";
import type { Clock, StopTimer } from "@kvasir/kit";
import { sseComment, sseData } from "@kvasir/wire";

/** Clients and proxies give up on a silent stream; two seconds is promised, this leaves room for a busy event loop. */
const QUIET_MS = 1_500;
/** A reader that takes nothing for that long is gone, whatever its connection says. The engine has given up on it before. */
const STALLED_MS = 90_000;

export class EventStream {
  readonly #response: ServerResponse;
  readonly #clock: Clock;
  readonly #comment: () => string;
  #stopTimer: StopTimer = () => {};
  #lastWriteMs = 0;
  #open = false;
  #wakeWriter: (() => void) | null = null;

  /** @param comment what to say when there is nothing to say */
  constructor(response: ServerResponse, clock: Clock, comment: () => string) {
    this.#response = response;
    this.#clock = clock;
    this.#comment = comment;
    const wake = (): void => {
      this.#wakeWriter?.();
      this.#wakeWriter = null;
    };
    response.on("drain", wake);
    response.once("close", () => {
      this.#finish();
      wake();
    });
  }

  /** Sends the headers at once. */
  open(headers: Readonly<Record<string, OutgoingHttpHeader | undefined>>): void {
    // The client may have gone while the request was on its way to the engine.
    if (this.#response.destroyed) return;
    this.#open = true;
    this.#response.writeHead(200, {
      ...headers,
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
    });
    this.#response.flushHeaders();
    this.#lastWriteMs = this.#clock.monotonicMs();
    this.#watch(QUIET_MS);
  }

  /** Resolves when the socket has taken it all, or is gone. */
  async send(values: readonly unknown[]): Promise<void> {
    if (values.length > 0) await this.write(values.map(sseData).join(""));
  }

  async write(text: string): Promise<void> {
    if (!this.#open) return;
    this.#lastWriteMs = this.#clock.monotonicMs();
    if (this.#response.write(text)) return;
    const stopTimer = this.#clock.startTimer(STALLED_MS, () => this.#response.destroy());
    await new Promise<void>((resolve) => {
      this.#wakeWriter = resolve;
    });
    stopTimer();
  }

  end(): void {
    if (!this.#open) return;
    this.#finish();
    this.#response.end();
  }

  #sendComment(): void {
    this.#lastWriteMs = this.#clock.monotonicMs();
    this.#response.write(sseComment(this.#comment()));
  }

  #finish(): void {
    this.#open = false;
    this.#stopTimer();
  }

  #watch(afterMs: number): void {
    this.#stopTimer = this.#clock.startTimer(afterMs, () => {
      const quietMs = this.#clock.monotonicMs() - this.#lastWriteMs;
      // Bytes that the reader has not taken yet are not silence.
      if (quietMs >= QUIET_MS && !this.#response.writableNeedDrain) this.#sendComment();
      this.#watch(quietMs >= QUIET_MS ? QUIET_MS : QUIET_MS - quietMs);
    });
  }
}
