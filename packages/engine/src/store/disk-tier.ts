/**
 * Pages in files: which pages are on disk, which should be next, what goes when the budget is spent.
 *
 *   head-first     a page is written only when its parent is on disk, and removed only when no child is
 *   one at a time  at most one write is under way; it counts against the budget from its beginning
 *   back-off       after a failed write nothing is written for a while
 */

import { type Clock, invariant } from "@kvasir/kit";
import type { PageNode } from "./page-node.ts";
import type { PageContent } from "./page-file.ts";
import { PageFiles } from "./page-files.ts";
import type { PageValues } from "./page-value.ts";
import { TierPages } from "./tier-pages.ts";

export interface DiskTierOptions {
  /** Cache folder, made when absent. One server uses it at a time. */
  readonly folder: string;
  /** Of model, KV format and library version: a folder name. */
  readonly fingerprint: string;
  /** Most bytes of page files in the folder, those of other fingerprints and a write under way included. */
  readonly budgetBytes: number;
}

export interface DiskTierContext {
  readonly bytesPerToken: number;
  readonly clock: Clock;
  readonly values: PageValues;
  /** Called with a page that has just lost its file. */
  readonly onLeft: (page: PageNode) => void;
  /** Keeps a page and all before it where they are until the returned release. */
  readonly lease: (page: PageNode) => () => void;
}

const BACK_OFF_MS = 30_000;

export class DiskTier {
  readonly files: PageFiles;
  readonly budgetBytes: number;
  readonly #context: DiskTierContext;
  readonly #pages = new TierPages();
  /** Pages in host memory that have no file. */
  readonly #unsaved = new Set<PageNode>();
  #writing: Promise<boolean> | null = null;
  #retryAtMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;
  readonly #counts = { written: 0, evicted: 0 };

  /** @throws CodedError cache_folder_in_use */
  constructor({ folder, fingerprint, budgetBytes }: DiskTierOptions, context: DiskTierContext) {
    this.files = new PageFiles(folder, fingerprint);
    this.budgetBytes = budgetBytes;
    this.#context = context;
  }

  get pageCount(): number {
    return this.#pages.size;
  }

  get pages(): Iterable<PageNode> {
    return this.#pages;
  }

  get counts(): Readonly<{ written: number; evicted: number }> {
    return this.#counts;
  }

  /** A file for this page is there. */
  hold(page: PageNode): void {
    invariant(!page.isOnDisk, `page at ${page.start} is on disk already`);
    page.isOnDisk = true;
    this.#pages.add(page);
    this.#unsaved.delete(page);
  }

  /** Tells that a page has got its slot in host memory, or lost it. */
  noteHost(page: PageNode): void {
    if (page.slot && !page.isOnDisk && !page.isGone) this.#unsaved.add(page);
    else this.#unsaved.delete(page);
  }

  /** Whether the file can go without anything stored behind it being cut off. */
  canEvict(page: PageNode): boolean {
    return this.#pages.isEnd(page) && page.leases === 0 && (page.slot !== null || page.children.size === 0);
  }

  /** Takes the page out of the tier and removes its file. */
  release(page: PageNode): void {
    this.#pages.delete(page);
    page.isOnDisk = false;
    this.files.remove(page.key);
    this.noteHost(page);
  }

  evict(page: PageNode): void {
    this.release(page);
    this.#context.onLeft(page);
  }

  /** Evicts until `bytes` more fit: pages set aside, then pages worth less than `below`, cheapest first. */
  makeRoom(bytes: number, below: number): boolean {
    if (bytes > this.budgetBytes) return false;
    while (this.files.usedBytes + bytes > this.budgetBytes) {
      if (this.files.setAside.removeOne()) continue;
      const victim = this.#pages.cheapestEnd(
        (page) => this.canEvict(page),
        (page) => this.#context.values.onDisk(page),
        below,
      );
      if (!victim) return false;
      this.#counts.evicted++;
      this.evict(victim);
    }
    return true;
  }

  read(page: PageNode, target: Uint8Array): Promise<boolean> {
    return this.files.read(contentOf(page), target);
  }

  /** Writes the most valuable page that is not on disk. A call while one is written waits for the same write. */
  writeNext(): Promise<boolean> {
    this.#writing ??= this.#writeNext().finally(() => {
      this.#writing = null;
    });
    return this.#writing;
  }

  /** No write begins any more; waits for the one under way, then gives the folder back. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#writing;
    this.files.close();
  }

  checkIntegrity(verifySizes: boolean): void {
    this.#pages.checkIntegrity();
    for (const page of this.#pages) {
      invariant(page.isOnDisk && page.parent, `page at ${page.start} is not on disk`);
      invariant(page.parent.isRoot || page.parent.isOnDisk, `page at ${page.start} is on disk without its parent`);
      if (!verifySizes) continue;
      const fault = this.files.sizeFault(page.key);
      invariant(fault === null, fault ?? "");
    }
    for (const page of this.#unsaved) {
      invariant(page.slot && !page.isOnDisk && !page.isGone, `page at ${page.start} is not waiting to be written`);
    }
    const writing = this.#writing ? 1 : 0;
    const surplus = this.files.fileCount - this.#pages.size;
    invariant(surplus >= 0 && surplus <= writing, `${this.files.fileCount} files for ${this.#pages.size} pages`);
    if (this.files.canWrite) {
      invariant(
        this.files.usedBytes <= this.budgetBytes,
        `${this.files.usedBytes} bytes on disk, the budget is ${this.budgetBytes}`,
      );
    }
  }

  async #writeNext(): Promise<boolean> {
    const { clock, bytesPerToken, values, lease } = this.#context;
    if (this.#isClosed || !this.files.canWrite || clock.monotonicMs() < this.#retryAtMs) return false;
    const page = this.#mostValuableUnsaved();
    if (!page?.slot) return false;
    const payload = page.slot.bytes.subarray(0, page.tokens.length * bytesPerToken);
    const release = lease(page);
    try {
      if (!this.makeRoom(PageFiles.bytesFor(page.tokens.length, payload.length), values.onDisk(page))) return false;
      const isWritten = await this.files.write(contentOf(page), payload);
      if (!isWritten) this.#retryAtMs = clock.monotonicMs() + BACK_OFF_MS;
      else if (page.isGone) this.files.remove(page.key);
      else {
        this.#counts.written++;
        this.hold(page);
      }
      return isWritten;
    } finally {
      release();
    }
  }

  #mostValuableUnsaved(): PageNode | null {
    let best: PageNode | null = null;
    let most = 0;
    for (const page of this.#unsaved) {
      if (!page.parent?.isRoot && !page.parent?.isOnDisk) continue;
      const value = this.#context.values.onDisk(page);
      if (best && value <= most) continue;
      best = page;
      most = value;
    }
    return best;
  }
}

function contentOf(page: PageNode): PageContent {
  const { key, parent, start, tokens } = page;
  invariant(parent, "a root has no file");
  return { key, parentKey: parent.key, start, tokens };
}
