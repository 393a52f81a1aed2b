/**
 * Stored prefixes: which tokens are kept, where their rows are, what goes when a budget is spent. Owned by the engine's step
 * loop, which calls it between two decodes; only `load`, `spill`, `spillAll` and `close` wait.
 *
 *   put      a lane's tokens → pages that are missing get a slot in host memory and their rows
 *   match    a prompt → the pages that cover its beginning, in whatever tier they are
 *   lease    keeps matched pages where they are until the release: restores, requests that wait and will hit them
 *   load     pages that are only on disk → host memory, as far as they can be had
 *   spill    the most valuable page that is not on disk → a file
 *
 * What always holds: a page with data has a parent with data, a page on disk a parent on disk. A page leaves the tree with its
 * last data. In each tier tails go before heads, the page of least value first (`page-value.ts`), and a page never displaces a
 * more valuable one. A file that turns out to be lost takes everything behind it along.
 */

import { type Clock, invariant } from "@kvasir/kit";
import { DiskTier, type DiskTierOptions } from "./disk-tier.ts";
import { HostTier } from "./host-tier.ts";
import { type LanePiece, PAGE_TOKENS, type RowLayout } from "./page.ts";
import { rootKey } from "./page-file.ts";
import { PageHolds } from "./page-holds.ts";
import { PageLoader } from "./page-loader.ts";
import type { PageNode } from "./page-node.ts";
import { PageValues } from "./page-value.ts";
import { type PrefixMatch, PrefixTree } from "./prefix-tree.ts";
import { ReturnModel } from "./return-model.ts";
import { type ReadRows, SequenceWriter, type TurnHints } from "./sequence-writer.ts";
import { checkStore } from "./store-integrity.ts";
import { type StoreCounts, type StoreStatus, tiersOf } from "./store-status.ts";
import { adoptStoredPages } from "./stored-tree.ts";

export interface PrefixStoreOptions {
  readonly layout: RowLayout;
  /** Most bytes of host memory: slots, their slabs and reads under way. */
  readonly hostBudgetBytes: number;
  /** Left out: pages live in host memory alone. */
  readonly disk?: DiskTierOptions;
  readonly clock: Clock;
  /** Milliseconds that computing tokens [from, to) takes. */
  readonly recomputeMs: (from: number, to: number) => number;
  /** Takes the place of a page's value, for comparisons of eviction policies. */
  readonly rankOf?: (page: PageNode) => number;
}

/** Rows of one stored page. */
export type PagePiece = Extract<LanePiece, { bytes: Uint8Array }>;

export interface Lease {
  readonly match: PrefixMatch;
  /** Safe to call twice. */
  release(): void;
}

export class PrefixStore {
  readonly #clock: Clock;
  readonly #fingerprint: string;
  readonly #tree = new PrefixTree();
  readonly #returns = new ReturnModel();
  readonly #holds: PageHolds;
  readonly #host: HostTier;
  readonly #writer: SequenceWriter;
  readonly #disk: DiskTier | null = null;
  readonly #loader: PageLoader | null = null;
  readonly #counts: StoreCounts = {
    storedPages: 0,
    loadedPages: 0,
    droppedPages: 0,
    hostHits: 0,
    diskHits: 0,
    restoredHostTokens: 0,
    restoredDiskTokens: 0,
  };

  /** Reads the index of the disk tier back. @throws CodedError cache_folder_in_use */
  constructor({ layout: { bytesPerToken }, hostBudgetBytes, disk, clock, recomputeMs, rankOf }: PrefixStoreOptions) {
    this.#clock = clock;
    this.#fingerprint = disk?.fingerprint ?? "";
    const values = new PageValues({ clock, bytesPerToken, recomputeMs, returns: this.#returns, ...(rankOf && { rankOf }) });
    const onLeft = (page: PageNode): void => this.#settle(page);
    const host = new HostTier(bytesPerToken * PAGE_TOKENS, hostBudgetBytes, values, onLeft);
    const holds = new PageHolds((slot) => host.returnSlot(slot));
    this.#host = host;
    this.#holds = holds;
    const onStored = (page: PageNode): void => {
      this.#disk?.noteHost(page);
      this.#counts.storedPages++;
    };
    const discard = (page: PageNode): void => {
      this.#cut(page);
    };
    const shared = { tree: this.#tree, returns: this.#returns, host, holds, values, clock, bytesPerToken };
    this.#writer = new SequenceWriter({ ...shared, onStored, discard });
    if (!disk) return;
    const lease = (page: PageNode): (() => void) => holds.lease(pathTo(page));
    this.#disk = new DiskTier(disk, { bytesPerToken, clock, values, onLeft, lease });
    const onLoaded = (): void => {
      this.#counts.loadedPages++;
    };
    const onLost = (page: PageNode): void => {
      this.#counts.droppedPages += this.#cut(page);
    };
    this.#loader = new PageLoader({ host, disk: this.#disk, bytesPerToken, onLoaded, onLost });
    this.#adoptFiles(this.#disk, bytesPerToken);
  }

  get pageCount(): number {
    return this.#tree.pageCount;
  }

  /** Bytes taken from the system for pages, never above the budget. */
  get hostBytes(): number {
    return this.#host.heldBytes;
  }

  /** Longest stored prefix. Looking does not count as a use. */
  match(namespace: string, tokens: Int32Array): PrefixMatch {
    const { pages, tokens: covered } = this.#tree.match(rootKey(this.#fingerprint, namespace), tokens);
    return matchOf(pages, covered, (page) => page.slot !== null);
  }

  lease(match: PrefixMatch): Lease {
    return { match, release: this.#holds.lease(match.pages) };
  }

  /**
   * Records that a request came back to this prefix, now.
   * @param from where its rows were taken from: the stored pages, or a lane that still held them
   */
  touch(match: PrefixMatch, from: "store" | "lane" = "store"): void {
    const nowMs = this.#clock.monotonicMs();
    const deepest = match.pages.at(-1);
    if (!deepest) return;
    // Choices of one request come at the same moment: only the first is a return.
    if (nowMs > deepest.lastUseMs) this.#returns.observe(deepest.turnKind, (nowMs - deepest.lastUseMs) / 1000);
    if (deepest.isLeftBehind) this.#returns.observeCameBack();
    for (const page of match.pages) {
      page.hasReturned = true;
      page.isLeftBehind = false;
      page.isOvertaken = false;
      page.lastUseMs = nowMs;
    }
    if (from === "lane") return;
    this.#counts[match.diskTokens > 0 ? "diskHits" : "hostHits"]++;
    this.#counts.restoredHostTokens += match.hostTokens;
    this.#counts.restoredDiskTokens += match.diskTokens;
  }

  /** The rows of a match as a lane takes them, all of them in host memory. Valid while the match is leased. */
  pieces(match: PrefixMatch): PagePiece[] {
    return match.pages.map((page, index) => {
      invariant(page.slot, `page at ${page.start} is not in host memory`);
      const count = index === match.pages.length - 1 ? match.lastCount : page.tokens.length;
      return { bytes: page.slot.bytes, stride: page.tokens.length, count };
    });
  }

  /**
   * Reads what of a match is only on disk into host memory, evicting as needed. Lease the match before, and keep the lease
   * while the result is used. Never rejects: a page that is gone or damaged is dropped with everything behind it.
   * @returns the first part of the match that is in host memory; its `diskTokens` came from disk now
   */
  async load(match: PrefixMatch, signal?: AbortSignal): Promise<PrefixMatch> {
    if (!this.#loader) return match;
    const fromHost = new Set(match.pages.filter((page) => page.slot));
    const release = this.#holds.lease(match.pages);
    try {
      const count = await this.#loader.load(match.pages, signal);
      const tokens = count === match.pages.length ? match.tokens : count * PAGE_TOKENS;
      return matchOf(match.pages.slice(0, count), tokens, (page) => fromHost.has(page));
    } finally {
      release();
    }
  }

  /**
   * Stores the pages of `tokens` that are missing, heads first, as far as the budget allows.
   * @returns tokens of the sequence that are stored now
   */
  put(namespace: string, tokens: Int32Array, read: ReadRows, hints: TurnHints = {}): number {
    if (this.#host.capacityPages === 0 || tokens.length === 0) return 0;
    return this.#writer.write(rootKey(this.#fingerprint, namespace), tokens, read, hints);
  }

  /** Marks what a lane holds, so that such pages are the first to go. @returns the release, for when the lane changes */
  markResident(match: PrefixMatch): () => void {
    return this.#holds.markResident(match.pages);
  }

  /**
   * Writes the next most valuable page to disk, one at a time.
   * @returns false when there is nothing to write, no room for it, or the disk refuses; `status` tells the reason
   */
  async spill(): Promise<boolean> {
    return (await this.#disk?.writeNext()) ?? false;
  }

  /** Spills until nothing is left to write, or until `deadlineMs` on the monotonic clock. @returns pages written */
  async spillAll(deadlineMs: number): Promise<number> {
    let pages = 0;
    while (this.#clock.monotonicMs() < deadlineMs && (await this.spill())) pages++;
    return pages;
  }

  /** Forgets what is not leased, in one tier or in both. In files it stays only as far as leased pages need it. */
  clear(tier?: "host" | "disk"): void {
    const disk = this.#disk;
    if (tier !== "disk") for (const page of tailsFirst(this.#host.pages)) if (this.#host.canEvict(page)) this.#host.evict(page);
    if (tier === "host" || !disk) return;
    for (const page of tailsFirst(disk.pages)) {
      if (disk.canEvict(page)) disk.evict(page);
      // Rows in host memory are worth nothing without the file before them.
      else if (!page.slot && page.isOnDisk && !isLeasedBelow(page)) this.#cut(page);
    }
  }

  /** Waits for reads and the write under way and gives the cache folder back. Pages in files stay. */
  async close(): Promise<void> {
    await this.#loader?.close();
    await this.#disk?.close();
  }

  status(): StoreStatus {
    return {
      tiers: tiersOf(this.#host, this.#disk, this.#loader?.slots ?? 0),
      counters: {
        ...this.#counts,
        refusedPages: this.#writer.refusedPages,
        evictedHostPages: this.#host.evictedPages,
        evictedDiskPages: this.#disk?.counts.evicted ?? 0,
        spilledPages: this.#disk?.counts.written ?? 0,
      },
      openLeases: this.#holds.openLeases,
    };
  }

  /** Adds up tree, tiers, slots and leases. @param options.verify compares file sizes on disk too */
  checkIntegrity(options: { verify?: boolean } = {}): void {
    checkStore(
      {
        tree: this.#tree,
        host: this.#host,
        disk: this.#disk,
        holds: this.#holds,
        slotsOfReads: this.#loader?.slots ?? 0,
      },
      options.verify ?? false,
    );
  }

  #adoptFiles(disk: DiskTier, bytesPerToken: number): void {
    const { adopted, rejected } = adoptStoredPages(this.#tree, disk.files.scan(), bytesPerToken);
    for (const { page, writtenMs } of adopted) {
      page.lastUseMs = this.#clock.monotonicMs() - Math.max(0, this.#clock.wallMs() - writtenMs);
      disk.hold(page);
    }
    for (const key of rejected) disk.files.remove(key);
    if (disk.files.canWrite) disk.makeRoom(0, Number.POSITIVE_INFINITY);
  }

  /** A page has lost its data in one tier. */
  #settle(page: PageNode): void {
    this.#disk?.noteHost(page);
    if (!page.hasData) this.#tree.remove(page);
  }

  /** Takes a page and everything behind it out of the tree and of all tiers; what is leased keeps its slot. @returns pages */
  #cut(page: PageNode): number {
    const pages = this.#tree.cut(page);
    for (const gone of pages) {
      if (gone.isOnDisk) this.#disk?.release(gone);
      if (gone.slot) this.#holds.keepSlot(gone, this.#host.release(gone));
      this.#disk?.noteHost(gone);
    }
    return pages.length;
  }
}

function matchOf(pages: readonly PageNode[], tokens: number, isFromHost: (page: PageNode) => boolean): PrefixMatch {
  const lastCount = pages.length === 0 ? 0 : tokens - (pages.length - 1) * PAGE_TOKENS;
  let hostTokens = 0;
  for (const [index, page] of pages.entries()) {
    if (isFromHost(page)) hostTokens += index === pages.length - 1 ? lastCount : PAGE_TOKENS;
  }
  return { pages, lastCount, tokens, hostTokens, diskTokens: tokens - hostTokens };
}

/** The pages from the first one to this one. */
function pathTo(page: PageNode): PageNode[] {
  const path: PageNode[] = [];
  for (let node = page; node.parent; node = node.parent) path.push(node);
  return path.toReversed();
}

function tailsFirst(pages: Iterable<PageNode>): PageNode[] {
  return [...pages].toSorted((one, other) => other.start - one.start);
}

function isLeasedBelow(page: PageNode): boolean {
  return page.leases > 0 || [...page.children].some(isLeasedBelow);
}
