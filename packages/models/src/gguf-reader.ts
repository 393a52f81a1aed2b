/**
 * Reads the header of one GGUF file: metadata and tensor descriptions, never the weights.
 *
 * Nothing in the file is trusted: every length is checked against what the file still holds before anything is allocated. A
 * length that runs over the end means a truncated file, an absurd one a broken file.
 *
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
 */

import { open } from "node:fs/promises";
import { CodedError, formatCount, messageOf } from "@kvasir/kit";
import { FileCursor } from "./file-cursor.ts";
import { tensorType } from "./ggml-types.ts";

/** Strings of a metadata array, decoded one at a time: a vocabulary of 150,000 entries is seldom needed whole. */
export class StringTable {
  readonly #bytes: Buffer;
  readonly #ends: Uint32Array;

  constructor(bytes: Buffer, ends: Uint32Array) {
    this.#bytes = bytes;
    this.#ends = ends;
  }

  get length(): number {
    return this.#ends.length;
  }

  at(index: number): string | undefined {
    const end = this.#ends[index];
    if (end === undefined) return undefined;
    return this.#bytes.toString("utf8", index === 0 ? 0 : this.#ends[index - 1], end);
  }

  toArray(): string[] {
    return Array.from(this.#ends, (_, index) => this.at(index) ?? "");
  }
}

/** 64-bit integers become numbers; those beyond 2^53 lose precision, which no key that is read here can reach. */
export type GgufValue = string | number | boolean | StringTable | readonly number[] | readonly boolean[];

export interface GgufTensor {
  readonly name: string;
  readonly elements: number;
  readonly bytes: number;
}

export interface GgufHeader {
  readonly version: number;
  /** Metadata by key. Arrays that nobody here reads (merges, scores) are left out. */
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: readonly GgufTensor[];
  readonly fileBytes: number;
}

const DEFAULT_ALIGNMENT = 32;
/** Longer strings and arrays than these are broken lengths, not data. */
const MAX_STRING_BYTES = 1 << 28;
const MAX_ELEMENTS = 1 << 28;
const MAX_DIMENSIONS = 4;
const MAX_ARRAY_DEPTH = 4;
const skippedKeys: ReadonlySet<string> = new Set([
  "tokenizer.ggml.merges",
  "tokenizer.ggml.scores",
  "tokenizer.ggml.precompiled_charsmap",
]);

/** Value types of the format by number. */
const U8 = 0,
  I8 = 1,
  U16 = 2,
  I16 = 3,
  U32 = 4,
  I32 = 5,
  F32 = 6,
  BOOL = 7,
  STRING = 8,
  ARRAY = 9,
  U64 = 10,
  I64 = 11,
  F64 = 12;
const fixedBytes: ReadonlyMap<number, number> = new Map([
  [U8, 1],
  [I8, 1],
  [U16, 2],
  [I16, 2],
  [U32, 4],
  [I32, 4],
  [F32, 4],
  [BOOL, 1],
  [U64, 8],
  [I64, 8],
  [F64, 8],
]);

/**
 * @throws CodedError model_file_missing when there is no such file or it cannot be read, model_file_invalid when it is not GGUF
 *   or its header is broken, model_file_truncated when it is shorter than its header and tensors say
 */
export async function readGgufHeader(path: string): Promise<GgufHeader> {
  const handle = await open(path, "r").catch((error: unknown) => {
    throw new CodedError("model_file_missing", `${path} cannot be opened: ${messageOf(error)}`, { cause: error });
  });
  try {
    const stats = await handle.stat();
    if (!stats.isFile()) throw invalid(path, "it is not a regular file");
    return new HeaderReader(path, new FileCursor(path, handle.fd, stats.size)).read();
  } finally {
    await handle.close();
  }
}

function invalid(path: string, reason: string): CodedError {
  return new CodedError("model_file_invalid", `${path} is not a usable GGUF model: ${reason}`);
}

class HeaderReader {
  readonly #path: string;
  readonly #cursor: FileCursor;

  constructor(path: string, cursor: FileCursor) {
    this.#path = path;
    this.#cursor = cursor;
  }

  read(): GgufHeader {
    const version = this.#readPreamble();
    const tensorCount = this.#count("tensor count");
    const keyCount = this.#count("metadata count");
    const metadata = new Map<string, GgufValue>();
    for (let i = 0; i < keyCount; i++) {
      const key = this.#string();
      const value = this.#value(this.#cursor.u32(), 0, !skippedKeys.has(key));
      if (value !== undefined) metadata.set(key, value);
    }
    const alignment = metadata.get("general.alignment") ?? DEFAULT_ALIGNMENT;
    if (typeof alignment !== "number" || alignment < 1 || !Number.isInteger(alignment)) {
      throw invalid(
        this.#path,
        `general.alignment is ${typeof alignment === "number" ? alignment : "not a number"}, a positive integer is needed`,
      );
    }
    return { version, metadata, tensors: this.#readTensors(tensorCount, alignment), fileBytes: this.#cursor.fileBytes };
  }

  #readPreamble(): number {
    if (this.#cursor.fileBytes === 0) throw invalid(this.#path, "it is empty");
    const magic = this.#cursor.take(Math.min(4, this.#cursor.fileBytes));
    if (magic.toString("latin1") !== "GGUF") {
      const hex = [...magic].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
      const text = magic.toString("latin1").replace(/[^ -~]/g, "?");
      throw invalid(
        this.#path,
        `it begins with the bytes ${hex} ("${text}"), a GGUF file begins with 47 47 55 46 ("GGUF")${hintFor(text)}`,
      );
    }
    const version = this.#cursor.u32();
    if (version === 2 || version === 3) return version;
    if ((version & 0xffff) === 0) throw invalid(this.#path, "it is big-endian; only little-endian files can be loaded");
    throw invalid(this.#path, `its GGUF version is ${version}, versions 2 and 3 can be loaded; convert the model again`);
  }

  #readTensors(count: number, alignment: number): GgufTensor[] {
    const tensors: GgufTensor[] = [];
    let dataBytes = 0;
    for (let i = 0; i < count; i++) {
      const name = this.#string();
      const dimensions = this.#cursor.u32();
      if (dimensions > MAX_DIMENSIONS)
        throw invalid(this.#path, `tensor ${name} has ${dimensions} dimensions, at most ${MAX_DIMENSIONS} exist`);
      let elements = 1;
      let rowElements = 1;
      for (let d = 0; d < dimensions; d++) {
        const size = this.#cursor.u64();
        if (d === 0) rowElements = size;
        elements *= size;
      }
      const typeId = this.#cursor.u32();
      const type = tensorType(typeId);
      if (!type) throw invalid(this.#path, `tensor ${name} has type ${typeId}, which llama.cpp v0.5.0 does not load`);
      if (rowElements % type.blockElements !== 0) {
        throw invalid(
          this.#path,
          `tensor ${name} has rows of ${rowElements} elements, ${type.name} needs a multiple of ${type.blockElements}`,
        );
      }
      const bytes = (elements / type.blockElements) * type.blockBytes;
      if (!Number.isSafeInteger(bytes)) throw invalid(this.#path, `tensor ${name} has ${elements} elements`);
      dataBytes = Math.max(dataBytes, this.#cursor.u64() + bytes);
      tensors.push({ name, elements, bytes });
    }
    const dataStart = Math.ceil(this.#cursor.offset / alignment) * alignment;
    const expectedBytes = dataStart + dataBytes;
    if (count > 0 && expectedBytes > this.#cursor.fileBytes) {
      throw new CodedError(
        "model_file_truncated",
        `${this.#path} has ${formatCount(this.#cursor.fileBytes)} bytes, its tensors need ${formatCount(expectedBytes)}: ` +
          `${formatCount(expectedBytes - this.#cursor.fileBytes)} bytes are missing; download or copy it again`,
      );
    }
    return tensors;
  }

  /** The value, or undefined for an array that is not kept. */
  #value(type: number, depth: number, keep: boolean): GgufValue | undefined {
    if (type === STRING) return this.#string();
    if (type === ARRAY) return this.#array(depth, keep);
    return this.#scalar(type);
  }

  #array(depth: number, keep: boolean): GgufValue | undefined {
    const type = this.#cursor.u32();
    const length = this.#count("array length");
    if (type === STRING) return this.#strings(length, keep);
    if (type === ARRAY) {
      if (depth >= MAX_ARRAY_DEPTH) throw invalid(this.#path, `arrays are nested deeper than ${MAX_ARRAY_DEPTH}`);
      for (let i = 0; i < length; i++) this.#value(ARRAY, depth + 1, false);
      return undefined;
    }
    const elementBytes = fixedBytes.get(type);
    if (elementBytes === undefined) throw invalid(this.#path, `an array has elements of the unknown type ${type}`);
    this.#cursor.need(length * elementBytes);
    if (!keep) {
      this.#cursor.skip(length * elementBytes);
      return undefined;
    }
    if (type === BOOL) return Array.from({ length }, () => this.#scalar(BOOL) === true);
    return Array.from({ length }, () => Number(this.#scalar(type)));
  }

  #strings(length: number, keep: boolean): StringTable | undefined {
    this.#cursor.need(length * 8);
    const ends = new Uint32Array(keep ? length : 0);
    const pieces: Buffer[] = [];
    let total = 0;
    for (let i = 0; i < length; i++) {
      const bytes = this.#length("string length", MAX_STRING_BYTES);
      this.#cursor.need(bytes);
      if (!keep) {
        this.#cursor.skip(bytes);
        continue;
      }
      pieces.push(this.#cursor.take(bytes));
      total += bytes;
      ends[i] = total;
    }
    return keep ? new StringTable(Buffer.concat(pieces, total), ends) : undefined;
  }

  #scalar(type: number): number | boolean {
    const bytes = fixedBytes.get(type);
    if (bytes === undefined) throw invalid(this.#path, `a metadata value has the unknown type ${type}`);
    const piece = this.#cursor.take(bytes);
    switch (type) {
      case U8:
        return piece.readUInt8();
      case I8:
        return piece.readInt8();
      case U16:
        return piece.readUInt16LE();
      case I16:
        return piece.readInt16LE();
      case U32:
        return piece.readUInt32LE();
      case I32:
        return piece.readInt32LE();
      case F32:
        return piece.readFloatLE();
      case BOOL:
        return piece.readUInt8() !== 0;
      case U64:
        return Number(piece.readBigUInt64LE());
      case I64:
        return Number(piece.readBigInt64LE());
      default:
        return piece.readDoubleLE();
    }
  }

  #string(): string {
    return this.#cursor.take(this.#length("string length", MAX_STRING_BYTES)).toString("utf8");
  }

  #count(what: string): number {
    return this.#length(what, MAX_ELEMENTS);
  }

  #length(what: string, most: number): number {
    const value = this.#cursor.u64();
    if (value > most)
      throw invalid(this.#path, `a ${what} of ${value} stands at byte ${this.#cursor.offset - 8}; the header is broken`);
    return value;
  }
}

/** What a file with another beginning usually is. */
function hintFor(beginning: string): string {
  if (beginning.startsWith("PK")) return "; it is a zip archive";
  if (beginning.startsWith("<")) return "; it looks like a web page, probably a failed download";
  if (beginning === "vers") return "; it looks like a Git LFS pointer, fetch the file itself (git lfs pull)";
  if (beginning === "ggml" || beginning === "tjgg" || beginning === "lmgg") return "; it is a model of the old GGML format";
  return "";
}
