/**
 * Writes a file that comes from outside: into a partial file first, counted and hashed on the way, renamed when size and
 * SHA-256 are right. A partial file that ended early is kept for the next attempt; one that is wrong is removed.
 */

import { createHash, type Hash } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, open, rename, rm, stat, statfs } from "node:fs/promises";
import { dirname } from "node:path";
import { CodedError, formatBytes, formatCount } from "@kvasir/kit";
import type { ProgressMeter } from "./pull-progress.ts";

export interface FileTarget {
  readonly finalPath: string;
  /** On the same file system as `finalPath`; nobody else writes to it. */
  readonly partialPath: string;
  readonly bytes: number;
  /** null where nobody knows the hash; the size is checked all the same. */
  readonly sha256: string | null;
  /** Names the file in errors. */
  readonly label: string;
}

/**
 * @param openSource content from a byte on
 * @returns whether the file is whole and in its place; false when the content ended early
 * @throws CodedError model_checksum_mismatch; model_download_failed when the disk is too full
 */
export async function receiveFile(
  target: FileTarget,
  openSource: (startByte: number) => Promise<AsyncIterable<Uint8Array>>,
  meter: ProgressMeter,
): Promise<boolean> {
  await mkdir(dirname(target.partialPath), { recursive: true });
  await mkdir(dirname(target.finalPath), { recursive: true });
  const hash = createHash("sha256");
  const startByte = await resumeFrom(target, hash);
  await checkSpace(target, startByte);
  meter.start(startByte);
  const received = startByte + (await append(target, await openSource(startByte), hash, startByte, meter));
  meter.report();
  if (received < target.bytes) return false;
  const digest = hash.digest("hex");
  if (target.sha256 !== null && digest !== target.sha256) {
    await rm(target.partialPath, { force: true });
    throw new CodedError(
      "model_checksum_mismatch",
      `${target.label} has SHA-256 ${digest}, expected is ${target.sha256}; nothing of it was kept`,
    );
  }
  await rename(target.partialPath, target.finalPath);
  return true;
}

/** Bytes of an earlier attempt, fed to the hash. */
async function resumeFrom(target: FileTarget, hash: Hash): Promise<number> {
  const size = await stat(target.partialPath).then(
    (stats) => stats.size,
    () => 0,
  );
  if (size === 0) return 0;
  if (size >= target.bytes) {
    await rm(target.partialPath, { force: true });
    return 0;
  }
  for await (const chunk of createReadStream(target.partialPath)) hash.update(chunk as Uint8Array);
  return size;
}

async function append(
  target: FileTarget,
  source: AsyncIterable<Uint8Array>,
  hash: Hash,
  startByte: number,
  meter: ProgressMeter,
): Promise<number> {
  const handle = await open(target.partialPath, startByte === 0 ? "w" : "a");
  let count = 0;
  try {
    for await (const chunk of source) {
      count += chunk.byteLength;
      if (startByte + count > target.bytes) break;
      hash.update(chunk);
      await handle.writeFile(chunk);
      meter.add(chunk.byteLength);
    }
    await handle.sync();
  } finally {
    await handle.close();
  }
  if (startByte + count <= target.bytes) return count;
  await rm(target.partialPath, { force: true });
  throw new CodedError(
    "model_checksum_mismatch",
    `${target.label} is longer than the ${formatCount(target.bytes)} bytes it should have; nothing of it was kept`,
  );
}

async function checkSpace(target: FileTarget, startByte: number): Promise<void> {
  const { bavail, bsize } = await statfs(dirname(target.partialPath));
  const free = bavail * bsize;
  const needed = target.bytes - startByte;
  if (needed <= free) return;
  throw new CodedError(
    "model_download_failed",
    `${target.label} needs ${formatBytes(needed)}, ${dirname(target.partialPath)} has ${formatBytes(free)} free; ` +
      "make room, or choose another folder with KVASIR_CACHE_DIR or HF_HUB_CACHE",
  );
}
