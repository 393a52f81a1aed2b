/**
 * What an export of a lane says, as a shape: which caches, which tensors, which rows. Only the layout that `libllama` 0.5
 * writes for attention caches is taken; anything else gives null, and the lane is kept whole instead of in pages.
 *
 *   cache    n_stream, then per stream: cell count, and for the lane's own stream
 *            cells × (position, 1, sequence), v_trans = 0, layers, K of each layer, V of each layer that has one
 *   tensor   ggml type, bytes a row, rows
 *   windowed models write two caches, one after the other
 */

import type { StatePart } from "./state-stream.ts";
import type { Address } from "./structs.ts";

export interface TensorShape {
  readonly tensor: Address;
  readonly rowBytes: number;
  /** The words before the rows, as the import wants them back: type and bytes a row. */
  readonly words: Uint8Array;
}

export interface CacheShape {
  readonly streams: number;
  readonly layers: number;
  /** Position of the first cell that was written; windowed layers leave out what they no longer see. */
  readonly first: number;
  readonly cells: number;
  readonly tensors: readonly TensorShape[];
}

class Parts {
  readonly #parts: readonly StatePart[];
  #next = 0;

  constructor(parts: readonly StatePart[]) {
    this.#parts = parts;
  }

  get ended(): boolean {
    return this.#next >= this.#parts.length;
  }

  /** Size of the bytes `ahead` parts from here; 0 for rows and behind the end. */
  sizeAhead(ahead: number): number {
    const part = this.#parts[this.#next + ahead];
    return part?.kind === "bytes" ? part.bytes.length : 0;
  }

  bytes(size: number): Uint8Array {
    const part = this.#parts[this.#next++];
    if (part?.kind !== "bytes" || part.bytes.length !== size) throw new UnknownShape();
    return part.bytes;
  }

  word(): number {
    const bytes = this.bytes(4);
    return new DataView(bytes.buffer, bytes.byteOffset).getInt32(0, true);
  }

  rows(): Extract<StatePart, { kind: "tensor" }> {
    const part = this.#parts[this.#next++];
    if (part?.kind !== "tensor") throw new UnknownShape();
    return part;
  }
}

class UnknownShape extends Error {}

/** @returns the caches of a lane that holds at least one token, or null when the export is not of the known shape */
export function shapeOf(described: readonly StatePart[]): CacheShape[] | null {
  const parts = new Parts(described);
  const caches: CacheShape[] = [];
  try {
    while (!parts.ended) caches.push(readCache(parts));
  } catch (error) {
    if (error instanceof UnknownShape) return null;
    throw error;
  }
  return caches.length > 0 ? caches : null;
}

function readCache(parts: Parts): CacheShape {
  const streams = parts.word();
  let cache: CacheShape | null = null;
  for (let stream = 0; stream < streams; stream++) {
    const cells = parts.word();
    if (cells === 0) continue;
    if (cache !== null) throw new UnknownShape();
    cache = { streams, ...readCells(parts, cells) };
  }
  if (cache === null) throw new UnknownShape();
  return cache;
}

function readCells(parts: Parts, cells: number): Omit<CacheShape, "streams"> {
  const first = parts.sizeAhead(0) === 4 ? readPositions(parts, cells) : 0;
  const transposed = parts.word();
  if (transposed !== 0) throw new UnknownShape();
  const layers = parts.word();
  const tensors: TensorShape[] = [];
  // A type word is followed by eight bytes; the stream count of a next cache is not.
  while (tensors.length < 2 * layers && parts.sizeAhead(0) === 4 && parts.sizeAhead(1) === 8) {
    tensors.push(readTensor(parts, first, cells));
  }
  if (tensors.length < layers) throw new UnknownShape();
  return { layers, first, cells, tensors };
}

/** Positions must follow each other: then cell and position differ by nothing. @returns the first */
function readPositions(parts: Parts, cells: number): number {
  let first = 0;
  for (let cell = 0; cell < cells; cell++) {
    const position = parts.word();
    const sequences = parts.word();
    parts.word();
    if (cell === 0) first = position;
    if (sequences !== 1 || position !== first + cell) throw new UnknownShape();
  }
  return first;
}

function readTensor(parts: Parts, first: number, cells: number): TensorShape {
  const type = parts.bytes(4);
  const rowWords = parts.bytes(8);
  const rowBytes = Number(new DataView(rowWords.buffer, rowWords.byteOffset).getBigUint64(0, true));
  const { tensor, offset, size } = parts.rows();
  if (offset !== first * rowBytes || size !== cells * rowBytes) throw new UnknownShape();
  const words = new Uint8Array(12);
  words.set(type);
  words.set(rowWords, 4);
  return { tensor, rowBytes, words };
}
