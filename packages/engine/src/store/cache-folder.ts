/**
 * A cache folder from outside, for people: what is in it, away with it, is it sound. Works beside a running server as far as
 * only reading goes; what removes files takes the folder's lock first.
 */

import { existsSync, rmdirSync, rmSync, statSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { crc32 } from "node:zlib";
import { messageOf } from "@kvasir/kit";
import { folderOwner, lockFolder } from "./folder-lock.ts";
import { decodeHeader, type PageHeader } from "./page-file.ts";
import { fingerprintFolders, PAGE_SUFFIX, pageFilesIn } from "./page-folder.ts";

export interface CachedModel {
  /** Of model, KV format and library version. */
  readonly fingerprint: string;
  readonly pages: number;
  readonly bytes: number;
  /** Files that a crash left half written; removed at the next start. */
  readonly temporaryFiles: number;
  /** Wall-clock milliseconds of the first and the last write; null without pages. */
  readonly oldestMs: number | null;
  readonly newestMs: number | null;
}

export interface CacheDescription {
  readonly models: readonly CachedModel[];
  /** Process that uses the folder now. */
  readonly owner: number | "unknown" | null;
}

export function describeCache(root: string): CacheDescription {
  return {
    models: fingerprintFolders(root)
      .map((fingerprint) => describeModel(root, fingerprint))
      .filter(({ pages, temporaryFiles }) => pages + temporaryFiles > 0),
    owner: folderOwner(root),
  };
}

/** Removes all pages of all models. @throws CodedError cache_folder_in_use; the file system's own error when a file stays */
export function clearCache(root: string): { readonly files: number; readonly bytes: number } {
  if (!existsSync(root)) return { files: 0, bytes: 0 };
  const unlock = lockFolder(root);
  try {
    let files = 0;
    let bytes = 0;
    for (const fingerprint of fingerprintFolders(root)) {
      const { pages, temporary } = pageFilesIn(root, fingerprint);
      for (const path of [...pages, ...temporary]) {
        bytes += statSync(path).size;
        rmSync(path);
        files++;
      }
      if (pages.length + temporary.length > 0) removeIfEmpty(join(root, fingerprint));
    }
    return { files, bytes };
  } finally {
    unlock();
  }
}

export interface BadFile {
  readonly path: string;
  readonly reason: string;
}

export interface CacheVerification {
  readonly files: number;
  readonly bytes: number;
  readonly bad: readonly BadFile[];
  readonly removedFiles: number;
}

/**
 * Reads every page and compares all checksums, one file at a time.
 * @param options.remove removes what is bad
 * @throws CodedError cache_folder_in_use, only with `remove`
 */
export async function verifyCache(root: string, options: { remove?: boolean } = {}): Promise<CacheVerification> {
  const unlock = options.remove && existsSync(root) ? lockFolder(root) : null;
  try {
    const bad: BadFile[] = [];
    let files = 0;
    let bytes = 0;
    for (const fingerprint of fingerprintFolders(root)) {
      const sound: CheckedFile[] = [];
      for (const path of pageFilesIn(root, fingerprint).pages) {
        const checked = await checkFile(path);
        if (!checked) continue;
        files++;
        bytes += checked.bytes;
        if (checked.header) sound.push(checked);
        else bad.push({ path, reason: checked.reason });
      }
      bad.push(...withoutParents(sound));
    }
    if (unlock) for (const { path } of bad) rmSync(path, { force: true });
    return { files, bytes, bad, removedFiles: unlock ? bad.length : 0 };
  } finally {
    unlock?.();
  }
}

function describeModel(root: string, fingerprint: string): CachedModel {
  const { pages, temporary } = pageFilesIn(root, fingerprint);
  const stats = pages.flatMap((path) => statSync(path, { throwIfNoEntry: false }) ?? []);
  const times = stats.map(({ mtimeMs }) => mtimeMs).toSorted((one, other) => one - other);
  return {
    fingerprint,
    pages: stats.length,
    bytes: stats.reduce((total, { size }) => total + size, 0),
    temporaryFiles: temporary.length,
    oldestMs: times[0] ?? null,
    newestMs: times.at(-1) ?? null,
  };
}

interface CheckedFile {
  readonly path: string;
  readonly bytes: number;
  /** null when the file is bad. */
  readonly header: PageHeader | null;
  readonly reason: string;
}

/** null when the file has gone since the folder was listed. */
async function checkFile(path: string): Promise<CheckedFile | null> {
  let contents: Buffer;
  try {
    contents = await readFile(path);
  } catch (cause) {
    if (cause instanceof Error && "code" in cause && cause.code === "ENOENT") return null;
    return { path, bytes: 0, header: null, reason: `cannot be read: ${messageOf(cause)}` };
  }
  const header = decodeHeader(contents);
  const reason = header ? faultOf(path, contents, header) : "its header is damaged or of another version";
  return { path, bytes: contents.length, header: reason === "" ? header : null, reason };
}

/** Empty when the file is as it was written. */
function faultOf(path: string, contents: Buffer, header: PageHeader): string {
  const wholeBytes = header.headerBytes + header.payloadBytes;
  if (contents.length !== wholeBytes) return `it has ${contents.length} of ${wholeBytes} bytes`;
  if (crc32(contents.subarray(header.headerBytes)) !== header.payloadChecksum) return "the checksum of its rows differs";
  return basename(path) === header.key + PAGE_SUFFIX ? "" : `it holds page ${header.key}`;
}

/** Pages that no chain of sound pages leads to. */
function withoutParents(sound: readonly CheckedFile[]): BadFile[] {
  const reachable = new Set<string>();
  const bad: BadFile[] = [];
  for (const { path, header } of sound.toSorted((one, other) => (one.header?.start ?? 0) - (other.header?.start ?? 0))) {
    if (!header) continue;
    if (header.start === 0 || reachable.has(header.parentKey)) reachable.add(header.key);
    else bad.push({ path, reason: "the page before it is missing or bad" });
  }
  return bad;
}

function removeIfEmpty(folder: string): void {
  try {
    rmdirSync(folder);
  } catch {
    // Something that is not ours lies in it.
  }
}
