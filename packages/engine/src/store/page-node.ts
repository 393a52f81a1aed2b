/**
 * One page in the tree: its tokens, who needs it, and in which tiers its data is. The fields are written by the store and its
 * tiers alone; everybody else reads.
 */

import { PAGE_TOKENS } from "./page.ts";
import type { PageSlot } from "./page-arena.ts";
import { pageKey } from "./page-file.ts";
import type { TurnEnd, TurnKind } from "./return-model.ts";

export class PageNode {
  readonly parent: PageNode | null;
  /** Position of the first token. */
  readonly start: number;
  readonly tokens: Int32Array;
  readonly children = new Set<PageNode>();
  /** Where the page's data is in host memory. */
  slot: PageSlot | null = null;
  /** Whether the page's data is in a file. */
  isOnDisk = false;
  /** Leases that keep the page where it is: restores, reads and writes under way, requests that wait for it. */
  leases = 0;
  /** Lanes that hold these tokens too. */
  residents = 0;
  /** Monotonic milliseconds of the last store or hit. */
  lastUseMs = Number.NEGATIVE_INFINITY;
  /** How the last turn that ran through this page ended. */
  turnEnd: TurnEnd = "unknown";
  /** Whether a request has come back to this page. */
  hasReturned = false;
  /** Its session went on from an earlier point. */
  isLeftBehind = false;
  /** It was the end of a prompt, and a page beside it holds most of the same tokens and the next ones. */
  isOvertaken = false;
  /** Out of the tree. What was leased then keeps its data in host memory until the release. */
  isGone = false;
  #key: string | null;

  constructor(parent: PageNode | null, start: number, tokens: Int32Array, key: string | null = null) {
    this.parent = parent;
    this.start = start;
    this.tokens = tokens;
    this.#key = key;
  }

  /** What all pages of one namespace hang from. It holds no tokens and is in no tier. */
  static root(key: string): PageNode {
    return new PageNode(null, 0, new Int32Array(0), key);
  }

  /** Name of the page wherever it is stored: equal keys mean equal tokens behind an equal prefix. */
  get key(): string {
    this.#key ??= pageKey(this.parent?.key ?? "", this.tokens);
    return this.#key;
  }

  get turnKind(): TurnKind {
    return this.hasReturned ? `${this.turnEnd}, again` : this.turnEnd;
  }

  get isRoot(): boolean {
    return this.parent === null;
  }

  /** Position behind the last token. */
  get end(): number {
    return this.start + this.tokens.length;
  }

  get isFull(): boolean {
    return this.tokens.length === PAGE_TOKENS;
  }

  get hasData(): boolean {
    return this.slot !== null || this.isOnDisk;
  }
}
