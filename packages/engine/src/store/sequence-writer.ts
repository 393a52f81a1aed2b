/** Stores a lane's tokens: makes the pages that are missing, finds room for them and has their rows copied. */

import type { Clock } from "@kvasir/kit";
import type { HostTier } from "./host-tier.ts";
import type { PageHolds } from "./page-holds.ts";
import type { PageNode } from "./page-node.ts";
import type { PageValues } from "./page-value.ts";
import type { Extension, PrefixTree } from "./prefix-tree.ts";
import type { ReturnModel, TurnEnd } from "./return-model.ts";
import { SessionTails } from "./session-tails.ts";

/** What the caller knows about the turn whose tokens it stores. */
export interface TurnHints {
  /** The session it belongs to, unique in its namespace: its new turn takes the place of its former one. */
  readonly session?: string;
  readonly end?: TurnEnd;
  /** Monotonic milliseconds when the turn ended, for a lane that is stored later. Left out: now. */
  readonly endedMs?: number;
}

/** Copies the rows of tokens [from, from + count) into `target`, tensor by tensor. */
export type ReadRows = (from: number, count: number, target: Uint8Array) => void;

export interface SequenceWriterContext {
  readonly tree: PrefixTree;
  readonly host: HostTier;
  readonly holds: PageHolds;
  readonly values: PageValues;
  readonly returns: ReturnModel;
  readonly clock: Clock;
  readonly bytesPerToken: number;
  /** Called with a page that holds its rows now. */
  readonly onStored: (page: PageNode) => void;
  /** Takes a page that nobody leases out of all tiers. */
  readonly discard: (page: PageNode) => void;
}

export class SequenceWriter {
  readonly #context: SequenceWriterContext;
  readonly #sessions = new SessionTails();
  #refusedPages = 0;

  constructor(context: SequenceWriterContext) {
    this.#context = context;
  }

  /** Pages that found no room because everything stored was worth more. */
  get refusedPages(): number {
    return this.#refusedPages;
  }

  /** @returns tokens of the sequence that are stored now */
  write(rootKey: string, tokens: Int32Array, read: ReadRows, hints: TurnHints): number {
    const { tree, holds } = this.#context;
    const extension = tree.extend(rootKey, tokens);
    const { path, added, overtaken } = extension;
    if (overtaken) overtaken.isOvertaken = true;
    this.#markUse(path, hints);
    if (hints.session !== undefined && this.#sessions.moveTo(`${rootKey} ${hints.session}`, path)) {
      this.#context.returns.observeLeftBehind();
    }
    const release = holds.lease(path);
    let filled = 0;
    try {
      for (const page of added) {
        if (!this.#fill(page, filled === 0 ? extension.outgrown : null, read)) break;
        filled++;
      }
    } finally {
      release();
      this.#refusedPages += added.length - filled;
      for (const page of added.slice(filled).toReversed()) this.#context.discard(page);
    }
    return added[filled]?.start ?? tokens.length;
  }

  #markUse(path: Extension["path"], hints: TurnHints): void {
    const usedMs = hints.endedMs ?? this.#context.clock.monotonicMs();
    for (const page of path) {
      // Another session may have used the shared head since.
      if (page.lastUseMs > usedMs) continue;
      page.lastUseMs = usedMs;
      page.turnEnd = hints.end ?? "unknown";
      page.isLeftBehind = false;
      page.isOvertaken = false;
    }
  }

  /** @returns false when there is no room */
  #fill(page: PageNode, outgrown: PageNode | null, read: ReadRows): boolean {
    const { host, values, bytesPerToken, onStored, discard } = this.#context;
    const isReplaced = outgrown !== null && outgrown.leases === 0;
    // The shorter page's slot is large enough, and its rows come again.
    const slot = isReplaced && outgrown.slot ? host.release(outgrown) : host.takeSlot(values.inHost(page));
    if (!slot) return false;
    host.hold(page, slot);
    if (isReplaced) discard(outgrown);
    else if (outgrown) outgrown.isOvertaken = true;
    read(page.start, page.tokens.length, slot.bytes.subarray(0, page.tokens.length * bytesPerToken));
    onStored(page);
    return true;
  }
}
