/** Names and headers of page files in a folder: what the disk tier, the pages set aside and the cache commands read alike. */

import { closeSync, fstatSync, openSync, readdirSync, readSync } from "node:fs";
import { join } from "node:path";
import { decodeHeader, HEADER_BYTES_MOST, type PageHeader } from "./page-file.ts";

export const PAGE_SUFFIX = ".page";
export const TEMPORARY_SUFFIX = ".tmp";

export interface StoredPage extends PageHeader {
  readonly fileBytes: number;
  /** Wall-clock milliseconds when the file was written. */
  readonly writtenMs: number;
}

/** Header of a page file that is as long as it says, or null. The payload is not looked at. */
export function readStoredPage(path: string): StoredPage | null {
  try {
    const file = openSync(path, "r");
    try {
      const head = Buffer.alloc(HEADER_BYTES_MOST);
      const header = decodeHeader(head.subarray(0, readSync(file, head, 0, head.length, 0)));
      const { size, mtimeMs } = fstatSync(file);
      if (!header || size !== header.headerBytes + header.payloadBytes) return null;
      return { ...header, fileBytes: size, writtenMs: mtimeMs };
    } finally {
      closeSync(file);
    }
  } catch {
    // Unreadable, or gone since the folder was listed.
    return null;
  }
}

/** Folders of a cache root that may hold pages: one a fingerprint. Empty when there is no such root. */
export function fingerprintFolders(root: string): string[] {
  try {
    return readdirSync(root, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => name);
  } catch {
    // No cache was ever made here.
    return [];
  }
}

/** Paths of a folder's page files, and of what crashes left of them. */
export function pageFilesIn(root: string, fingerprint: string): { pages: string[]; temporary: string[] } {
  const folder = join(root, fingerprint);
  const names = listNames(folder).map((name) => join(folder, name));
  return {
    pages: names.filter((name) => name.endsWith(PAGE_SUFFIX)),
    temporary: names.filter((name) => name.endsWith(TEMPORARY_SUFFIX)),
  };
}

function listNames(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    // Another process has just removed the folder, or it is not ours to read.
    return [];
  }
}
