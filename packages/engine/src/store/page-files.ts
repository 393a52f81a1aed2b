/**
 * One file a page, in a folder of its own for each fingerprint. A file appears by rename, so it is whole or absent; what a crash
 * leaves behind is a temporary file, removed at the next start. The files are the index: it is read back from their headers,
 * and nothing else has to agree with them.
 *
 *   <root>/kvasir.lock, kvasir.pid            one server a root
 *   <root>/<fingerprint>/<key>.page           private to their owner (0600): their headers hold the tokens
 *
 * Nothing here throws once it is open: a page that cannot be written is not on disk, one that cannot be read, or whose checksum
 * differs, is removed. A root that cannot be locked, because it is read-only, is read and never written.
 */

import { mkdirSync, readdirSync, rmSync, statSync } from "node:fs";
import { type FileHandle, open, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { CodedError, messageOf } from "@kvasir/kit";
import { lockFolder } from "./folder-lock.ts";
import { decodeHeader, encodeHeader, headerBytesOf, type PageContent } from "./page-file.ts";
import { PAGE_SUFFIX, readStoredPage, type StoredPage, TEMPORARY_SUFFIX } from "./page-folder.ts";
import { SetAsidePages } from "./set-aside-pages.ts";

export interface FileFaults {
  /** Pages that could not be written. */
  readonly write: number;
  /** Files that were gone or could not be read. */
  readonly read: number;
  /** Files whose contents were not as written. */
  readonly checksum: number;
}

export class PageFiles {
  readonly #folder: string;
  readonly #unlock: (() => void) | null = null;
  readonly #readOnlyReason: string | null = null;
  readonly #bytesOf = new Map<string, number>();
  /** Files that should be gone and could not be removed. */
  readonly #stuckBytesOf = new Map<string, number>();
  /** Pages of other models, KV formats or library versions. */
  readonly setAside: SetAsidePages;
  #bytes = 0;
  #writeFault: string | null = null;
  readonly #faults = { write: 0, read: 0, checksum: 0 };

  /**
   * @param root the cache folder, made when absent, readable by its owner only
   * @param fingerprint of model, KV format and library: what makes pages interchangeable. Becomes a folder name
   * @throws CodedError cache_folder_in_use
   */
  constructor(root: string, fingerprint: string) {
    this.#folder = join(root, fingerprint);
    try {
      mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
      this.#unlock = lockFolder(root);
    } catch (cause) {
      if (cause instanceof CodedError) throw cause;
      this.#readOnlyReason = `${this.#folder} cannot be written: ${messageOf(cause)}`;
    }
    this.setAside = new SetAsidePages(root, fingerprint);
  }

  /** Bytes of all files that count against the budget: pages, writes under way, pages set aside. */
  get usedBytes(): number {
    return this.#bytes + this.setAside.bytes;
  }

  /** Bytes of this fingerprint's files, writes under way included. */
  get ownBytes(): number {
    return this.#bytes;
  }

  get fileCount(): number {
    return this.#bytesOf.size;
  }

  /** Why pages cannot be written: the reason of the last write if it failed, or of a read-only folder. */
  get writeFault(): string | null {
    return this.#readOnlyReason ?? this.#writeFault;
  }

  get canWrite(): boolean {
    return this.#unlock !== null;
  }

  get faults(): FileFaults {
    return this.#faults;
  }

  /** All whole files, in no order. The rest is removed. Call once, before anything else. */
  scan(): StoredPage[] {
    const pages: StoredPage[] = [];
    for (const name of this.#names()) {
      const path = join(this.#folder, name);
      const page = name.endsWith(PAGE_SUFFIX) ? readStoredPage(path) : null;
      if (page && name === page.key + PAGE_SUFFIX) {
        pages.push(page);
        this.#account(page.key, page.fileBytes);
      } else if (this.#unlock && (name.endsWith(PAGE_SUFFIX) || name.endsWith(TEMPORARY_SUFFIX))) {
        tryRemove(path);
      }
    }
    return pages;
  }

  /** Writes a page. @returns whether it is on disk now; the reason of a failure is kept in `writeFault` */
  async write(page: PageContent, payload: Uint8Array): Promise<boolean> {
    if (!this.#unlock) return false;
    const path = this.#pathOf(page.key);
    const temporary = `${path}${TEMPORARY_SUFFIX}`;
    const header = encodeHeader(page, payload);
    this.#account(page.key, header.length + payload.length);
    try {
      const file = await open(temporary, "w", 0o600);
      try {
        await writeWhole(file, header, payload);
      } finally {
        await file.close();
      }
      await rename(temporary, path);
      this.#writeFault = null;
      return true;
    } catch (cause) {
      this.#faults.write++;
      this.#writeFault = messageOf(cause);
      this.#discount(page.key);
      await rm(temporary, { force: true }).catch(() => {
        // The folder cannot be written: what is there is removed at the next start.
      });
      return false;
    }
  }

  /** Reads a page's payload into `target` (exactly its size). @returns false when the file is gone, cut or changed */
  async read(page: PageContent, target: Uint8Array): Promise<boolean> {
    try {
      const file = await open(this.#pathOf(page.key), "r");
      try {
        const head = Buffer.alloc(headerBytesOf(page.tokens.length));
        const { bytesRead } = await file.readv([head, target], 0);
        const header = decodeHeader(head);
        const isWhole =
          bytesRead === head.length + target.length &&
          header?.key === page.key &&
          header.payloadBytes === target.length &&
          header.payloadChecksum === crc32(target);
        if (!isWhole) this.#faults.checksum++;
        return isWhole;
      } finally {
        await file.close();
      }
    } catch {
      // Deleted or unreadable: the same as a page that was never stored.
      this.#faults.read++;
      return false;
    }
  }

  /** Bytes that a page of this size takes on disk. */
  static bytesFor(tokenCount: number, payloadBytes: number): number {
    return headerBytesOf(tokenCount) + payloadBytes;
  }

  remove(key: string): void {
    const bytes = this.#bytesOf.get(key) ?? 0;
    this.#discount(key);
    if (this.#unlock && tryRemove(this.#pathOf(key))) return;
    // It still takes its room.
    this.#stuckBytesOf.set(key, bytes);
    this.#bytes += bytes;
  }

  /** @returns what is wrong with a page's file, or null */
  sizeFault(key: string): string | null {
    const expected = this.#bytesOf.get(key);
    try {
      const { size } = statSync(this.#pathOf(key));
      return size === expected ? null : `${key} has ${size} bytes on disk, ${expected} are counted`;
    } catch (cause) {
      return messageOf(cause);
    }
  }

  close(): void {
    this.#unlock?.();
  }

  #account(key: string, bytes: number): void {
    this.#bytes += bytes - (this.#stuckBytesOf.get(key) ?? 0);
    this.#stuckBytesOf.delete(key);
    this.#bytesOf.set(key, bytes);
  }

  #discount(key: string): void {
    this.#bytes -= this.#bytesOf.get(key) ?? 0;
    this.#bytesOf.delete(key);
  }

  #pathOf(key: string): string {
    return join(this.#folder, key + PAGE_SUFFIX);
  }

  #names(): string[] {
    try {
      return readdirSync(this.#folder);
    } catch {
      // A folder that could not be made holds nothing.
      return [];
    }
  }
}

/** A full disk may take a part of a write and refuse the rest. */
async function writeWhole(file: FileHandle, header: Uint8Array, payload: Uint8Array): Promise<void> {
  let { bytesWritten: done } = await file.writev([header, payload]);
  for (const total = header.length + payload.length; done < total; ) {
    const rest = done < header.length ? header.subarray(done) : payload.subarray(done - header.length);
    const { bytesWritten } = await file.write(rest);
    if (bytesWritten === 0) throw new Error(`only ${done} of ${total} bytes were written`);
    done += bytesWritten;
  }
}

/** @returns whether the file is gone */
function tryRemove(path: string): boolean {
  try {
    rmSync(path, { force: true });
    return true;
  } catch {
    // The folder has become read-only.
    return false;
  }
}
