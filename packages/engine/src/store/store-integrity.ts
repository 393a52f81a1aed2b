/** Adds up what the parts of the store believe about each other. Throws InvariantError with the numbers. */

import { invariant } from "@kvasir/kit";
import type { DiskTier } from "./disk-tier.ts";
import type { HostTier } from "./host-tier.ts";
import type { PageHolds } from "./page-holds.ts";
import type { PrefixTree } from "./prefix-tree.ts";

export interface StoreParts {
  readonly tree: PrefixTree;
  readonly host: HostTier;
  readonly disk: DiskTier | null;
  readonly holds: PageHolds;
  /** Slots that reads under way fill. */
  readonly slotsOfReads: number;
}

export function checkStore({ tree, host, disk, holds, slotsOfReads }: StoreParts, verifySizes: boolean): void {
  tree.checkIntegrity();
  host.checkIntegrity();
  disk?.checkIntegrity(verifySizes);
  let inHost = 0;
  let onDisk = 0;
  for (const page of tree.pages()) {
    invariant(page.hasData, `page at ${page.start} has no data`);
    invariant(page.parent?.isRoot || page.parent?.hasData, `page at ${page.start} has data without its parent`);
    if (page.slot) inHost++;
    if (page.isOnDisk) onDisk++;
  }
  invariant(inHost === host.pageCount, `${inHost} pages of the tree are in host memory, the tier has ${host.pageCount}`);
  invariant(onDisk === (disk?.pageCount ?? 0), `${onDisk} pages of the tree are on disk, the tier has ${disk?.pageCount}`);
  const slots = inHost + holds.checkIntegrity(tree.pages()) + slotsOfReads;
  invariant(slots === host.usedSlots, `${slots} slots have an owner, ${host.usedSlots} are taken`);
}
