/** What the prefix store tells about itself. Counters only grow while the process lives. */

import type { DiskTier } from "./disk-tier.ts";
import type { HostTier } from "./host-tier.ts";
import type { FileFaults } from "./page-files.ts";

export interface StoreTiers {
  /** Bytes taken from the system for pages, free slots included. Never above the budget. */
  readonly hostBytes: number;
  readonly hostBudgetBytes: number;
  readonly hostPages: number;
  /** Bytes of this fingerprint's page files, a write under way included. */
  readonly diskBytes: number;
  /** 0 without a disk tier. */
  readonly diskBudgetBytes: number;
  readonly diskPages: number;
  /** Pages of other models, KV formats or library versions in the same folder: never used, first to go. */
  readonly setAsideFiles: number;
  readonly setAsideBytes: number;
  /** Pages that are being read from disk now; at most two. */
  readonly readsUnderWay: number;
  readonly faults: FileFaults;
  /** Why pages cannot be written to disk now, or null. */
  readonly writeFault: string | null;
}

/** What the store itself counts. */
export interface StoreCounts {
  /** Pages whose rows came out of a lane. */
  storedPages: number;
  /** Pages read back from disk. */
  loadedPages: number;
  /** Pages lost with a file that was gone, cut or changed. */
  droppedPages: number;
  /** Prompts that stored rows were used for, by the slowest tier that any of them came from. */
  hostHits: number;
  diskHits: number;
  restoredHostTokens: number;
  restoredDiskTokens: number;
}

export interface StoreCounters extends Readonly<StoreCounts> {
  /** Pages that found no room because everything stored was worth more. */
  readonly refusedPages: number;
  readonly evictedHostPages: number;
  readonly evictedDiskPages: number;
  /** Pages written to disk. */
  readonly spilledPages: number;
}

export interface StoreStatus {
  readonly tiers: StoreTiers;
  readonly counters: StoreCounters;
  readonly openLeases: number;
}

const NO_FAULTS: FileFaults = { write: 0, read: 0, checksum: 0 };

export function tiersOf(host: HostTier, disk: DiskTier | null, readsUnderWay: number): StoreTiers {
  return {
    hostBytes: host.heldBytes,
    hostBudgetBytes: host.budgetBytes,
    hostPages: host.pageCount,
    diskBytes: disk?.files.ownBytes ?? 0,
    diskBudgetBytes: disk?.budgetBytes ?? 0,
    diskPages: disk?.pageCount ?? 0,
    setAsideFiles: disk?.files.setAside.fileCount ?? 0,
    setAsideBytes: disk?.files.setAside.bytes ?? 0,
    readsUnderWay,
    faults: { ...(disk?.files.faults ?? NO_FAULTS) },
    writeFault: disk?.files.writeFault ?? null,
  };
}
