/**
 * Appends records to a JSONL file, one JSON object a line, and rotates it by size: `log.jsonl` becomes `log.jsonl.1`, that
 * one `log.jsonl.2`, up to `keptFiles`; the oldest is dropped.
 *
 * `append` never blocks and never throws. One writer at a time works on the file, lines leave in the order they came, and a
 * line is never split over two files. At most `maxPendingBytes` wait in memory; what does not fit is dropped and counted.
 * The first failure of a row of failures goes to `onError`, the rest of the row does not.
 */

import { type FileHandle, mkdir, open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { MIB } from "./units.ts";

export interface JsonlWriterOptions {
  readonly path: string;
  /** Size that a file does not exceed, a longer single line excepted. 0: never rotate. */
  readonly maxBytes: number;
  /** Rotated files that are kept beside the current one. Default 3. */
  readonly keptFiles?: number;
  /** Default 8 MiB. */
  readonly maxPendingBytes?: number;
  readonly onError: (error: Error) => void;
}

export class JsonlWriter {
  readonly #options: Required<JsonlWriterOptions>;
  #file: FileHandle;
  #fileBytes: number;
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #droppedRecords = 0;
  #isFailing = false;
  #isClosed = false;
  #writing: Promise<void> | null = null;

  private constructor(options: Required<JsonlWriterOptions>, file: FileHandle, fileBytes: number) {
    this.#options = options;
    this.#file = file;
    this.#fileBytes = fileBytes;
  }

  /** Opens the file for appending and makes its folder. Rejects when that fails. */
  static async open(options: JsonlWriterOptions): Promise<JsonlWriter> {
    await mkdir(dirname(options.path), { recursive: true });
    const file = await open(options.path, "a");
    return new JsonlWriter({ keptFiles: 3, maxPendingBytes: 8 * MIB, ...options }, file, (await file.stat()).size);
  }

  /** Records that did not fit into memory or could not be written. */
  get droppedRecords(): number {
    return this.#droppedRecords;
  }

  append(record: object): void {
    const line = Buffer.from(`${JSON.stringify(record)}\n`);
    if (this.#isClosed || this.#pendingBytes + line.length > this.#options.maxPendingBytes) {
      this.#droppedRecords++;
      return;
    }
    this.#pending.push(line);
    this.#pendingBytes += line.length;
    this.#writing ??= this.#writePending();
  }

  /** Resolves when everything appended so far is written or dropped. */
  async flush(): Promise<void> {
    while (this.#writing !== null) await this.#writing;
  }

  /** Writes what waits and closes the file. Records appended later are dropped. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.flush();
    await this.#file.close();
  }

  async #writePending(): Promise<void> {
    while (this.#pending.length > 0) {
      const lines = this.#takeLines();
      const bytes = lines.reduce((sum, line) => sum + line.length, 0);
      try {
        if (this.#mustRotate(bytes)) await this.#rotate();
        await this.#file.appendFile(Buffer.concat(lines));
        this.#fileBytes += bytes;
        this.#isFailing = false;
      } catch (error) {
        this.#droppedRecords += lines.length;
        this.#report(error);
      }
      this.#pendingBytes -= bytes;
    }
    this.#writing = null;
  }

  /** The lines that fit into the current file together, or the first alone. */
  #takeLines(): Buffer[] {
    const { maxBytes } = this.#options;
    let count = 0;
    let bytes = this.#mustRotate(this.#pending[0]?.length ?? 0) ? 0 : this.#fileBytes;
    for (const line of this.#pending) {
      if (count > 0 && maxBytes > 0 && bytes + line.length > maxBytes) break;
      bytes += line.length;
      count++;
    }
    return this.#pending.splice(0, count);
  }

  #mustRotate(bytes: number): boolean {
    return this.#options.maxBytes > 0 && this.#fileBytes > 0 && this.#fileBytes + bytes > this.#options.maxBytes;
  }

  /** Until the new file is open the old handle stays in place, so a failed rotation goes on appending. */
  async #rotate(): Promise<void> {
    const { path, keptFiles } = this.#options;
    await rm(`${path}.${keptFiles}`, { force: true });
    for (let number = keptFiles - 1; number >= 1; number--) await renameIfThere(`${path}.${number}`, `${path}.${number + 1}`);
    if (keptFiles > 0) await renameIfThere(path, `${path}.1`);
    else await rm(path, { force: true });
    const old = this.#file;
    this.#file = await open(path, "a");
    this.#fileBytes = 0;
    await old.close();
  }

  #report(error: unknown): void {
    if (this.#isFailing) return;
    this.#isFailing = true;
    this.#options.onError(error instanceof Error ? error : new Error(String(error)));
  }
}

async function renameIfThere(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    // A number that was never written, or a file that somebody moved away.
    if (!(error instanceof Error && "code" in error && error.code === "ENOENT")) throw error;
  }
}
