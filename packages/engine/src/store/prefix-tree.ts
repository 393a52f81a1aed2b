/**
 * The prefix store's index: a radix tree whose edges are pages. A page's place in the tree is its identity, so a head that ten
 * sessions share is one path. The tree knows tokens and references, never bytes.
 *
 *   root ─ page [0..64) ─ page [64..128) ─┬─ page [128..192) ─ …      full pages may have children
 *                                         └─ page [128..150)          a shorter page is always a leaf
 */

import { invariant } from "@kvasir/kit";
import { commonPrefix } from "../lane-table.ts";
import { PAGE_TOKENS } from "./page.ts";
import { PageNode } from "./page-node.ts";

/** Pages that cover a prompt's beginning: all but the last whole, of the last its first `lastCount` tokens. */
export interface PrefixMatch {
  readonly pages: readonly PageNode[];
  readonly lastCount: number;
  /** Prompt tokens covered. */
  readonly tokens: number;
  /** Of these, tokens whose rows were in host memory at the time of the match … */
  readonly hostTokens: number;
  /** … and tokens whose rows come from disk. */
  readonly diskTokens: number;
}

export interface Extension {
  /** The pages of the whole sequence. */
  readonly path: readonly PageNode[];
  /** The last pages of `path`: new ones, without data. */
  readonly added: readonly PageNode[];
  /** A shorter page whose tokens all are in the first added one. Still in the tree. */
  readonly outgrown: PageNode | null;
  /** A short page, the end of a former prompt, that shares most of its tokens with the first added one. */
  readonly overtaken: PageNode | null;
}

export class PrefixTree {
  /** One root a namespace, by its key: sessions of different salts never meet. */
  readonly #roots = new Map<string, PageNode>();
  #pages = 0;

  get pageCount(): number {
    return this.#pages;
  }

  /** Pages of the longest stored prefix of `tokens`, token by token, not rounded to pages. */
  match(rootKey: string, tokens: Int32Array): { pages: PageNode[]; tokens: number } {
    const pages: PageNode[] = [];
    let covered = 0;
    for (let node = this.#roots.get(rootKey); node && (node.isRoot || node.isFull); ) {
      const best = closestChild(node, tokens.subarray(covered, covered + PAGE_TOKENS));
      if (!best) break;
      pages.push(best.child);
      covered += best.shared;
      if (best.shared < PAGE_TOKENS) break;
      node = best.child;
    }
    return { pages, tokens: covered };
  }

  /** Makes the path for `tokens`, which is not empty. Who calls gives the added pages data or removes them. */
  extend(rootKey: string, tokens: Int32Array): Extension {
    let node = this.#rootOf(rootKey);
    const path: PageNode[] = [];
    const added: PageNode[] = [];
    let outgrown: PageNode | null = null;
    let overtaken: PageNode | null = null;
    for (let start = 0; start < tokens.length; start += PAGE_TOKENS) {
      const wanted = tokens.subarray(start, start + PAGE_TOKENS);
      const closest = closestChild(node, wanted);
      // A stored page that begins with all wanted tokens serves as it is.
      if (closest && closest.shared === wanted.length) {
        node = closest.child;
      } else {
        if (closest && closest.shared === closest.child.tokens.length) outgrown = closest.child;
        else if (closest && !closest.child.isFull && 2 * closest.shared >= closest.child.tokens.length)
          overtaken = closest.child;
        node = this.#add(node, start, wanted.slice());
        added.push(node);
      }
      path.push(node);
    }
    return { path, added, outgrown, overtaken };
  }

  /** Puts a page back that a file describes. @returns null where the tree has no place for it */
  adopt(parent: PageNode, page: { start: number; tokens: Int32Array; key: string }): PageNode | null {
    if (parent.end !== page.start || (!parent.isRoot && !parent.isFull)) return null;
    return this.#add(parent, page.start, page.tokens, page.key);
  }

  /** The root for pages that were written below this key, in this run or before. */
  rootForKey(rootKey: string): PageNode {
    return this.#rootOf(rootKey);
  }

  /** Takes a leaf out. Its data must have been freed, or is the caller's to free. */
  remove(page: PageNode): void {
    invariant(page.children.size === 0, `page at ${page.start} has ${page.children.size} children`);
    invariant(page.leases === 0, `page at ${page.start} has ${page.leases} leases`);
    this.cut(page);
  }

  /** Takes a page out with everything behind it, leased or not. @returns the pages, tails first; their data is the caller's to free */
  cut(page: PageNode): PageNode[] {
    const { parent } = page;
    invariant(parent, "a root is not a page");
    invariant(parent.children.delete(page), `page at ${page.start} was removed twice`);
    const pages = [...descend(page)].toReversed();
    for (const gone of pages) gone.isGone = true;
    this.#pages -= pages.length;
    if (parent.isRoot && parent.children.size === 0) this.#roots.delete(parent.key);
    return pages;
  }

  /** Every page, parents before children. */
  *pages(): Generator<PageNode> {
    for (const root of this.#roots.values()) for (const child of root.children) yield* descend(child);
  }

  checkIntegrity(): void {
    let count = 0;
    for (const root of this.#roots.values()) invariant(root.children.size > 0, "an empty root was kept");
    for (const page of this.pages()) {
      count++;
      const { parent } = page;
      invariant(parent && !page.isGone, `page at ${page.start} is not in the tree`);
      invariant(parent.children.has(page), `page at ${page.start} is not its parent's child`);
      invariant(
        page.start === parent.end && page.start % PAGE_TOKENS === 0,
        `page at ${page.start} follows a page that ends at ${parent.end}`,
      );
      invariant(
        page.tokens.length >= 1 && page.tokens.length <= PAGE_TOKENS,
        `page at ${page.start} has ${page.tokens.length} tokens`,
      );
      invariant(page.isFull || page.children.size === 0, `the short page at ${page.start} has children`);
    }
    invariant(count === this.#pages, `${this.#pages} pages counted, ${count} in the tree`);
  }

  #rootOf(rootKey: string): PageNode {
    const known = this.#roots.get(rootKey);
    if (known) return known;
    const root = PageNode.root(rootKey);
    this.#roots.set(rootKey, root);
    return root;
  }

  #add(parent: PageNode, start: number, tokens: Int32Array, key: string | null = null): PageNode {
    const page = new PageNode(parent, start, tokens, key);
    parent.children.add(page);
    this.#pages++;
    return page;
  }
}

function* descend(page: PageNode): Generator<PageNode> {
  const pending = [page];
  for (let next = pending.pop(); next; next = pending.pop()) {
    yield next;
    pending.push(...next.children);
  }
}

/** The child that shares most leading tokens with `wanted`; of equals the longest. Null when none shares any. */
function closestChild(node: PageNode, wanted: Int32Array): { child: PageNode; shared: number } | null {
  let best: { child: PageNode; shared: number } | null = null;
  for (const child of node.children) {
    if (child.tokens[0] !== wanted[0]) continue;
    const shared = commonPrefix(child.tokens, wanted);
    if (!best || shared > best.shared || (shared === best.shared && child.tokens.length > best.child.tokens.length)) {
      best = { child, shared };
    }
  }
  return best;
}
