/** How much host memory and disk the prefix store may take. */

import { mkdirSync, statfsSync } from "node:fs";
import { join, resolve } from "node:path";
import { CodedError, formatBytes, MIB, messageOf } from "@kvasir/kit";
import type { Configuration } from "../config/options.ts";

export interface StorePlan {
  readonly hostCacheBytes: number;
  readonly disk: { readonly folder: string; readonly budgetBytes: number } | null;
}

/** Share of the memory that weights and lanes leave, for sessions that are not in a lane. */
const automaticShare = 0.25;

/**
 * @param freeBytes host memory that weights and lanes leave
 * @throws CodedError invalid_configuration for a budget larger than what there is, or a folder that cannot be used
 */
export function planStore(
  options: Pick<Configuration, "hostCacheMib" | "diskCacheMib" | "diskCacheFolder">,
  freeBytes: number,
  cacheDir: string,
): StorePlan {
  const room = Math.max(0, freeBytes);
  const asked = options.hostCacheMib === null ? null : options.hostCacheMib * MIB;
  if (asked !== null && asked > room) {
    throw invalid(
      "hostCacheMib",
      `--host-cache-mib is ${options.hostCacheMib}; ${formatBytes(room)} of memory are there beside weights and lanes. Give at most ${Math.floor(room / MIB)}, or leave it out for a quarter of that.`,
    );
  }
  const hostCacheBytes = asked ?? Math.floor((room * automaticShare) / MIB) * MIB;
  if (options.diskCacheMib === 0) return { hostCacheBytes, disk: null };
  const folder = resolve(options.diskCacheFolder ?? join(cacheDir, "prefixes"));
  return { hostCacheBytes, disk: { folder, budgetBytes: checkedDiskBytes(folder, options.diskCacheMib) } };
}

function checkedDiskBytes(folder: string, diskCacheMib: number): number {
  const budgetBytes = diskCacheMib * MIB;
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const { bavail, bsize, blocks } = statfsSync(folder);
    // What is stored there already is part of the budget, so the whole disk is the limit, not what is free of it now.
    if (budgetBytes <= blocks * bsize) return budgetBytes;
    throw invalid(
      "diskCacheMib",
      `--disk-cache-mib is ${diskCacheMib}; the disk of ${folder} has ${formatBytes(blocks * bsize)}, ${formatBytes(bavail * bsize)} of it free. Give less, or another --disk-cache-folder.`,
    );
  } catch (cause) {
    if (cause instanceof CodedError) throw cause;
    throw invalid(
      "diskCacheFolder",
      `--disk-cache-folder ${folder} cannot be used (${messageOf(cause)}); give a folder that this user may write.`,
      cause,
    );
  }
}

function invalid(param: string, message: string, cause?: unknown): CodedError {
  return new CodedError("invalid_configuration", message, { param, ...(cause === undefined ? {} : { cause }) });
}
