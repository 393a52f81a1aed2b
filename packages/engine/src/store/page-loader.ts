/**
 * Brings pages from disk into host memory. At most two reads are under way, whoever asked for them: they run on the thread pool
 * that also runs the backend's long steps, and with one write they leave it a thread.
 */

import type { DiskTier } from "./disk-tier.ts";
import type { HostTier } from "./host-tier.ts";
import type { PageNode } from "./page-node.ts";

const READS_AT_ONCE = 2;

export interface PageLoaderContext {
  readonly host: HostTier;
  readonly disk: DiskTier;
  readonly bytesPerToken: number;
  /** Called with a page whose file is gone, cut or changed. */
  readonly onLost: (page: PageNode) => void;
  /** Called with a page that has just got its slot. */
  readonly onLoaded: (page: PageNode) => void;
}

export class PageLoader {
  readonly #context: PageLoaderContext;
  readonly #loading = new Map<PageNode, Promise<boolean>>();
  readonly #waiting: Array<() => void> = [];
  #reads = 0;
  #slots = 0;
  #isClosed = false;

  constructor(context: PageLoaderContext) {
    this.#context = context;
  }

  /** Slots that reads under way fill. */
  get slots(): number {
    return this.#slots;
  }

  /**
   * Loads leased pages of one path, heads first. It stops at the first page that cannot be had, and when `signal` aborts.
   * @returns how many of the first pages are in host memory
   */
  async load(pages: readonly PageNode[], signal: AbortSignal | undefined): Promise<number> {
    let next = 0;
    let end = pages.length;
    const mayGoOn = (): boolean => next < end && !signal?.aborted && !this.#isClosed;
    const work = async (): Promise<void> => {
      while (mayGoOn()) {
        const index = next++;
        const page = pages[index];
        if (page && !(await this.#bring(page))) end = Math.min(end, index);
      }
    };
    await Promise.all(Array.from({ length: READS_AT_ONCE }, work));
    const missing = pages.findIndex((page, index) => index >= end || !page.slot || page.isGone);
    return missing === -1 ? pages.length : missing;
  }

  /** No read begins any more; waits for those under way. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#loading.values());
  }

  /** @returns whether the page is in host memory now */
  async #bring(page: PageNode): Promise<boolean> {
    if (page.slot) return true;
    const known = this.#loading.get(page);
    if (known) return known;
    const loading = this.#read(page).finally(() => this.#loading.delete(page));
    this.#loading.set(page, loading);
    return loading;
  }

  async #read(page: PageNode): Promise<boolean> {
    await this.#takeTurn();
    try {
      const { host, disk, bytesPerToken, onLost, onLoaded } = this.#context;
      if (this.#isClosed || page.isGone || !page.isOnDisk) return false;
      const slot = host.takeSlot(Number.POSITIVE_INFINITY);
      if (!slot) return false;
      this.#slots++;
      const isWhole = await disk.read(page, slot.bytes.subarray(0, page.tokens.length * bytesPerToken));
      this.#slots--;
      if (isWhole && !page.isGone) {
        host.hold(page, slot);
        onLoaded(page);
        return true;
      }
      host.returnSlot(slot);
      if (!page.isGone) onLost(page);
      return false;
    } finally {
      this.#endTurn();
    }
  }

  async #takeTurn(): Promise<void> {
    if (this.#reads < READS_AT_ONCE) this.#reads++;
    // Whoever ends a turn hands it over.
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  #endTurn(): void {
    const next = this.#waiting.shift();
    if (next) next();
    else this.#reads--;
  }
}
