/**
 * Reads a file front to back in chunks. A chunk is never written to again, so the views that it hands out stay valid; it is
 * freed when nobody holds a view of it. Little-endian.
 */

import { readSync } from "node:fs";
import { CodedError, formatCount } from "@kvasir/kit";

const CHUNK_BYTES = 1 << 20;

export class FileCursor {
  readonly #path: string;
  readonly #fd: number;
  readonly fileBytes: number;
  #chunk: Buffer = Buffer.alloc(0);
  /** File offset of the first byte of the chunk. */
  #chunkStart = 0;
  #offset = 0;

  /** @param fd stays the caller's, who closes it */
  constructor(path: string, fd: number, fileBytes: number) {
    this.#path = path;
    this.#fd = fd;
    this.fileBytes = fileBytes;
  }

  /** File offset of the next byte. */
  get offset(): number {
    return this.#offset;
  }

  u32(): number {
    const at = this.#advance(4);
    return this.#chunk.readUInt32LE(at);
  }

  /** Loses precision beyond 2^53. */
  u64(): number {
    const at = this.#advance(8);
    return this.#chunk.readUInt32LE(at) + this.#chunk.readUInt32LE(at + 4) * 2 ** 32;
  }

  /** The next bytes, as a view. */
  take(bytes: number): Buffer {
    const at = this.#advance(bytes);
    return this.#chunk.subarray(at, at + bytes);
  }

  skip(bytes: number): void {
    this.need(bytes);
    this.#offset += bytes;
  }

  /**
   * Checks that the file holds `bytes` more.
   * @throws CodedError model_file_truncated
   */
  need(bytes: number): void {
    const expectedBytes = this.#offset + bytes;
    if (expectedBytes <= this.fileBytes) return;
    throw new CodedError(
      "model_file_truncated",
      `${this.#path} has ${formatCount(this.fileBytes)} bytes and ends inside its header, which needs at least ` +
        `${formatCount(expectedBytes)}; download or copy it again`,
    );
  }

  /** Moves past the next bytes, all of which are in the chunk then, and returns where in the chunk they begin. */
  #advance(bytes: number): number {
    this.need(bytes);
    if (this.#offset < this.#chunkStart || this.#offset - this.#chunkStart + bytes > this.#chunk.length) {
      this.#chunk = this.#readAt(this.#offset, Math.min(Math.max(bytes, CHUNK_BYTES), this.fileBytes - this.#offset));
      this.#chunkStart = this.#offset;
    }
    const at = this.#offset - this.#chunkStart;
    this.#offset += bytes;
    return at;
  }

  #readAt(position: number, length: number): Buffer {
    const chunk = Buffer.allocUnsafe(length);
    let filled = 0;
    while (filled < length) {
      const count = readSync(this.#fd, chunk, filled, length - filled, position + filled);
      if (count === 0) throw new CodedError("model_file_truncated", `${this.#path} became shorter while it was read`);
      filled += count;
    }
    return chunk;
  }
}
