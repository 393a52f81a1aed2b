/** Puts pages found on disk back into the tree: a page has a place only behind its parent. */

import type { StoredPage } from "./page-folder.ts";
import type { PageNode } from "./page-node.ts";
import type { PrefixTree } from "./prefix-tree.ts";

export interface AdoptedPages {
  /** Parents before children. */
  readonly adopted: ReadonlyArray<{ readonly page: PageNode; readonly writtenMs: number }>;
  /** Keys of files that have no place: their parent is missing, or they are not of this layout. */
  readonly rejected: readonly string[];
}

/** @param bytesPerToken of the layout in force; a file of another size is not used */
export function adoptStoredPages(tree: PrefixTree, stored: readonly StoredPage[], bytesPerToken: number): AdoptedPages {
  const pageOf = new Map<string, PageNode>();
  const adopted: Array<{ page: PageNode; writtenMs: number }> = [];
  const rejected: string[] = [];
  for (const file of stored.toSorted((one, other) => one.start - other.start)) {
    const isOfLayout = file.payloadBytes === file.tokens.length * bytesPerToken;
    const parent = file.start === 0 ? tree.rootForKey(file.parentKey) : pageOf.get(file.parentKey);
    const page = isOfLayout && parent ? tree.adopt(parent, file) : null;
    if (!page) {
      rejected.push(file.key);
      continue;
    }
    pageOf.set(file.key, page);
    adopted.push({ page, writtenMs: file.writtenMs });
  }
  return { adopted, rejected };
}
