/**
 * Who needs which pages: leases keep pages where they are, residents say that a lane holds the same rows. Pages that leave the
 * tree while they are leased keep their slot here until the last release.
 */

import { invariant } from "@kvasir/kit";
import type { PageSlot } from "./page-arena.ts";
import type { PageNode } from "./page-node.ts";

export class PageHolds {
  readonly #leases = new Set<readonly PageNode[]>();
  readonly #residents = new Set<readonly PageNode[]>();
  readonly #slotsOfGone = new Map<PageNode, PageSlot>();
  readonly #freeSlot: (slot: PageSlot) => void;

  constructor(freeSlot: (slot: PageSlot) => void) {
    this.#freeSlot = freeSlot;
  }

  get openLeases(): number {
    return this.#leases.size;
  }

  /** @returns the release; safe to call twice */
  lease(pages: readonly PageNode[]): () => void {
    const own = [...pages];
    this.#leases.add(own);
    for (const page of own) page.leases++;
    return () => {
      if (!this.#leases.delete(own)) return;
      for (const page of own) {
        page.leases--;
        this.#settleGone(page);
      }
    };
  }

  /** @returns the release; safe to call twice */
  markResident(pages: readonly PageNode[]): () => void {
    const own = [...pages];
    this.#residents.add(own);
    for (const page of own) page.residents++;
    return () => {
      if (!this.#residents.delete(own)) return;
      for (const page of own) page.residents--;
    };
  }

  /** Takes over the slot of a page that has left the tree: its rows stay readable while it is leased. */
  keepSlot(page: PageNode, slot: PageSlot): void {
    page.slot = slot;
    this.#slotsOfGone.set(page, slot);
    this.#settleGone(page);
  }

  /** @returns slots of pages that have left the tree */
  checkIntegrity(treePages: Iterable<PageNode>): number {
    const leases = countByPage(this.#leases);
    const residents = countByPage(this.#residents);
    for (const page of new Set([...treePages, ...leases.keys(), ...residents.keys()])) {
      const expected = leases.get(page) ?? 0;
      invariant(page.leases === expected, `page at ${page.start} counts ${page.leases} leases, ${expected} are open`);
      const lanes = residents.get(page) ?? 0;
      invariant(page.residents === lanes, `page at ${page.start} counts ${page.residents} lanes, ${lanes} hold it`);
    }
    for (const [page, slot] of this.#slotsOfGone) {
      invariant(page.isGone && page.leases > 0 && page.slot === slot, `the slot of page ${page.start} is kept for nobody`);
    }
    return this.#slotsOfGone.size;
  }

  #settleGone(page: PageNode): void {
    const slot = this.#slotsOfGone.get(page);
    if (!slot || page.leases > 0) return;
    this.#slotsOfGone.delete(page);
    page.slot = null;
    this.#freeSlot(slot);
  }
}

function countByPage(holds: Iterable<readonly PageNode[]>): Map<PageNode, number> {
  const counts = new Map<PageNode, number>();
  for (const pages of holds) for (const page of pages) counts.set(page, (counts.get(page) ?? 0) + 1);
  return counts;
}
