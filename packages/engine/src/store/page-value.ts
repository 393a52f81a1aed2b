/**
 * What a page is worth where it is: what it would save, times how soon it is asked for, per byte.
 *
 *   value = milliseconds to get its rows otherwise × expected returns per second ÷ bytes
 *
 * "Otherwise" depends on what else holds the rows: a lane costs a copy, a file a read, nothing a computation at the page's
 * depth. So a page that is held twice goes first, and of the rest the cheap and the forgotten ones.
 */

import type { Clock } from "@kvasir/kit";
import type { PageNode } from "./page-node.ts";
import type { ReturnModel } from "./return-model.ts";

export interface PageValuesOptions {
  readonly clock: Clock;
  readonly bytesPerToken: number;
  readonly returns: ReturnModel;
  /** Milliseconds that computing tokens [from, to) takes. */
  readonly recomputeMs: (from: number, to: number) => number;
  /** Takes the place of the whole value, for comparisons of policies. */
  readonly rankOf?: (page: PageNode) => number;
}

/** Between a lane and host memory, on the CPU. Only its order of magnitude counts. */
const COPY_MS_PER_BYTE = 2e-7;
/** From a file. Only its order of magnitude counts. */
const READ_MS_PER_BYTE = 1e-6;
/** Share of overtaken pages that are asked for again, rather than the page beside them. */
const OVERTAKEN_SHARE = 0.05;

export class PageValues {
  readonly #options: PageValuesOptions;

  constructor(options: PageValuesOptions) {
    this.#options = options;
  }

  /** Worth of keeping the page in host memory, in milliseconds a second and byte. */
  inHost(page: PageNode): number {
    return this.#options.rankOf?.(page) ?? this.#savedMsPerByte(page) * this.#returnsPerSecond(page);
  }

  /** Worth of keeping the page's file, as if nothing else held it: lanes and host memory do not outlive the process. */
  onDisk(page: PageNode): number {
    return this.#options.rankOf?.(page) ?? this.#recomputeMsPerByte(page) * this.#returnsPerSecond(page);
  }

  #savedMsPerByte(page: PageNode): number {
    if (page.residents > 0) return COPY_MS_PER_BYTE;
    return page.isOnDisk ? READ_MS_PER_BYTE : this.#recomputeMsPerByte(page);
  }

  #recomputeMsPerByte(page: PageNode): number {
    return this.#options.recomputeMs(page.start, page.end) / (page.tokens.length * this.#options.bytesPerToken);
  }

  #returnsPerSecond(page: PageNode): number {
    const silentSeconds = Math.max(0, this.#options.clock.monotonicMs() - page.lastUseMs) / 1000;
    const rate = this.#options.returns.rate(page.turnKind, silentSeconds);
    if (page.isOvertaken) return rate * OVERTAKEN_SHARE;
    return page.isLeftBehind ? rate * this.#options.returns.shareComingBack : rate;
  }
}
