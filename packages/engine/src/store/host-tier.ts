/** Pages in host memory: who has a slot, and who gives one up when the budget is spent. */

import { invariant } from "@kvasir/kit";
import { PageArena, type PageSlot } from "./page-arena.ts";
import type { PageNode } from "./page-node.ts";
import type { PageValues } from "./page-value.ts";
import { TierPages } from "./tier-pages.ts";

export class HostTier {
  readonly #arena: PageArena;
  readonly #pages = new TierPages();
  readonly #values: PageValues;
  readonly #onLeft: (page: PageNode) => void;
  #evictedPages = 0;

  /** @param onLeft called with a page that has just lost its slot */
  constructor(slotBytes: number, budgetBytes: number, values: PageValues, onLeft: (page: PageNode) => void) {
    this.#arena = new PageArena(slotBytes, budgetBytes);
    this.#values = values;
    this.#onLeft = onLeft;
  }

  get heldBytes(): number {
    return this.#arena.heldBytes;
  }

  get budgetBytes(): number {
    return this.#arena.budgetBytes;
  }

  /** Slots taken: pages, and reads under way. */
  get usedSlots(): number {
    return this.#arena.usedSlots;
  }

  get capacityPages(): number {
    return this.#arena.capacitySlots;
  }

  get pageCount(): number {
    return this.#pages.size;
  }

  get evictedPages(): number {
    return this.#evictedPages;
  }

  /** Pages in no order. */
  get pages(): Iterable<PageNode> {
    return this.#pages;
  }

  /** A free slot; pages worth less than `below` are evicted for it, cheapest first. Null when there is none. */
  takeSlot(below: number): PageSlot | null {
    for (;;) {
      const slot = this.#arena.allocate();
      if (slot) return slot;
      const victim = this.#pages.cheapestEnd(
        (page) => page.leases === 0,
        (page) => this.#values.inHost(page),
        below,
      );
      if (!victim) return null;
      this.#evictedPages++;
      this.evict(victim);
    }
  }

  returnSlot(slot: PageSlot): void {
    this.#arena.free(slot);
  }

  hold(page: PageNode, slot: PageSlot): void {
    invariant(!page.slot, `page at ${page.start} has a slot already`);
    page.slot = slot;
    this.#pages.add(page);
  }

  /** Takes the page out of the tier and leaves its slot to the caller. */
  release(page: PageNode): PageSlot {
    const { slot } = page;
    invariant(slot, `page at ${page.start} has no slot`);
    this.#pages.delete(page);
    page.slot = null;
    return slot;
  }

  evict(page: PageNode): void {
    this.#arena.free(this.release(page));
    this.#onLeft(page);
  }

  /** Whether the page can go without a tail staying behind. */
  canEvict(page: PageNode): boolean {
    return this.#pages.isEnd(page) && page.leases === 0;
  }

  checkIntegrity(): void {
    this.#arena.checkIntegrity();
    this.#pages.checkIntegrity();
    for (const page of this.#pages) invariant(page.slot, `page at ${page.start} has no slot`);
  }
}
