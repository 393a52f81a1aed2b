/**
 * The pages that one tier holds, and which of them are ends: pages without a child in the same tier. Only ends may leave a
 * tier, so that tails go before heads.
 */

import { invariant } from "@kvasir/kit";
import type { PageNode } from "./page-node.ts";

export class TierPages {
  readonly #pages = new Set<PageNode>();
  readonly #ends = new Set<PageNode>();
  /** Children in this tier, also of pages that are not in it. */
  readonly #childCounts = new Map<PageNode, number>();

  get size(): number {
    return this.#pages.size;
  }

  has(page: PageNode): boolean {
    return this.#pages.has(page);
  }

  [Symbol.iterator](): IterableIterator<PageNode> {
    return this.#pages.values();
  }

  add(page: PageNode): void {
    invariant(!this.#pages.has(page), `page at ${page.start} was added twice`);
    this.#pages.add(page);
    if (!this.#childCounts.has(page)) this.#ends.add(page);
    if (!page.parent) return;
    this.#childCounts.set(page.parent, (this.#childCounts.get(page.parent) ?? 0) + 1);
    this.#ends.delete(page.parent);
  }

  delete(page: PageNode): void {
    invariant(this.#pages.delete(page), `page at ${page.start} is not in this tier`);
    this.#ends.delete(page);
    if (!page.parent) return;
    const siblings = (this.#childCounts.get(page.parent) ?? 0) - 1;
    if (siblings > 0) {
      this.#childCounts.set(page.parent, siblings);
      return;
    }
    this.#childCounts.delete(page.parent);
    if (this.#pages.has(page.parent)) this.#ends.add(page.parent);
  }

  isEnd(page: PageNode): boolean {
    return this.#ends.has(page);
  }

  /** The end of least value among those that may leave and are worth less than `below`. */
  cheapestEnd(mayLeave: (page: PageNode) => boolean, valueOf: (page: PageNode) => number, below: number): PageNode | null {
    let cheapest: PageNode | null = null;
    let least = below;
    for (const page of this.#ends) {
      if (!mayLeave(page)) continue;
      const value = valueOf(page);
      if (value < least) {
        least = value;
        cheapest = page;
      }
    }
    return cheapest;
  }

  checkIntegrity(): void {
    const childCounts = new Map<PageNode, number>();
    for (const { parent } of this.#pages) if (parent) childCounts.set(parent, (childCounts.get(parent) ?? 0) + 1);
    for (const page of this.#pages) {
      const children = childCounts.get(page) ?? 0;
      invariant(
        (children === 0) === this.#ends.has(page),
        `page at ${page.start} with ${children} children is${this.#ends.has(page) ? "" : " not"} an end`,
      );
      invariant((this.#childCounts.get(page) ?? 0) === children, `page at ${page.start} has ${children} children in the tier`);
    }
    invariant(childCounts.size === this.#childCounts.size, "the tier counts children of pages that have none");
    for (const page of this.#ends) invariant(this.#pages.has(page), `the end at ${page.start} is not in the tier`);
  }
}
