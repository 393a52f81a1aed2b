/**
 * Where each session's last prompt ended, so that the rest of a rewritten one can be told from one that will be extended. Only
 * for sessions that the caller can name: from the prefix alone, a rewritten session looks like a new one.
 */

import { PAGE_TOKENS } from "./page.ts";
import type { PageNode } from "./page-node.ts";

/** Sessions remembered; the longest silent one is forgotten first. */
const SESSIONS_MOST = 4096;

export class SessionTails {
  readonly #tails = new Map<string, { readonly page: PageNode; readonly usedMs: number }>();

  /**
   * The session's prompt is `path` now, its pages marked as used. Pages of its former prompt that are not part of it are marked as left behind, unless
   * another prompt has run through them since.
   * @returns whether any was left behind
   */
  moveTo(session: string, path: readonly PageNode[]): boolean {
    const former = this.#tails.get(session);
    const tail = path.at(-1);
    this.#tails.delete(session);
    if (tail) this.#tails.set(session, { page: tail, usedMs: tail.lastUseMs });
    this.#forgetOldest();
    if (!former || former.page.isGone) return false;
    let left = false;
    for (let { page } = former; page.parent && path[page.start / PAGE_TOKENS] !== page; page = page.parent) {
      if (page.lastUseMs !== former.usedMs || [...page.children].some((child) => !child.isLeftBehind)) break;
      page.isLeftBehind = true;
      left = true;
    }
    return left;
  }

  #forgetOldest(): void {
    for (const session of this.#tails.keys()) {
      if (this.#tails.size <= SESSIONS_MOST) return;
      this.#tails.delete(session);
    }
  }
}
