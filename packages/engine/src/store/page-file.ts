/**
 * One stored page as a file: everything that is needed to put it back into the tree, and checksums over all of it.
 *
 *   0   magic "KVPG"          u32
 *   4   format version        u32
 *   8   header bytes          u32      64 + 4 × token count
 *   12  header checksum       u32      CRC-32 of header bytes [16, header bytes)
 *   16  payload checksum      u32      CRC-32
 *   20  payload bytes         u32
 *   24  start                 u32      position of the first token
 *   28  token count           u32      1..64
 *   32  key                   16 bytes
 *   48  parent key            16 bytes
 *   64  tokens                i32 × count
 *   …   payload               rows, tensor by tensor
 */

import { createHash } from "node:crypto";
import { crc32 } from "node:zlib";
import { PAGE_TOKENS } from "./page.ts";

const PAGE_FILE_VERSION = 1;
const MAGIC = 0x47_50_56_4b;
const TOKENS_AT = 64;
/** Longest header: what one read of a file's beginning must cover. */
export const HEADER_BYTES_MOST = TOKENS_AT + 4 * PAGE_TOKENS;

/** What a page is, apart from its rows. */
export interface PageContent {
  readonly key: string;
  readonly parentKey: string;
  readonly start: number;
  readonly tokens: Int32Array;
}

export interface PageHeader extends PageContent {
  readonly payloadBytes: number;
  readonly payloadChecksum: number;
  readonly headerBytes: number;
}

/** Key of a root: what all pages under it have in common. A one-way hash, so that files do not tell salts or API keys. */
export function rootKey(fingerprint: string, namespace: string): string {
  return createHash("sha256").update(`${fingerprint}\0${namespace}`).digest("hex").slice(0, 32);
}

/** Key of a page: its parent's key and its tokens, so that equal keys mean equal prefixes. */
export function pageKey(parentKey: string, tokens: Int32Array): string {
  const bytes = new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength);
  return createHash("sha256").update(parentKey).update(bytes).digest("hex").slice(0, 32);
}

export function headerBytesOf(tokenCount: number): number {
  return TOKENS_AT + 4 * tokenCount;
}

export function encodeHeader(page: PageContent, payload: Uint8Array): Buffer {
  const header = Buffer.alloc(headerBytesOf(page.tokens.length));
  header.writeUInt32LE(MAGIC, 0);
  header.writeUInt32LE(PAGE_FILE_VERSION, 4);
  header.writeUInt32LE(header.length, 8);
  header.writeUInt32LE(crc32(payload), 16);
  header.writeUInt32LE(payload.length, 20);
  header.writeUInt32LE(page.start, 24);
  header.writeUInt32LE(page.tokens.length, 28);
  header.write(page.key, 32, "hex");
  header.write(page.parentKey, 48, "hex");
  for (const [index, token] of page.tokens.entries()) header.writeInt32LE(token, TOKENS_AT + 4 * index);
  header.writeUInt32LE(crc32(header.subarray(16)), 12);
  return header;
}

/** The header at the beginning of `bytes`, or null when any part of it is not as written. */
export function decodeHeader(bytes: Buffer): PageHeader | null {
  if (bytes.length < TOKENS_AT || bytes.readUInt32LE(0) !== MAGIC || bytes.readUInt32LE(4) !== PAGE_FILE_VERSION) return null;
  const headerBytes = bytes.readUInt32LE(8);
  const count = bytes.readUInt32LE(28);
  if (count < 1 || count > PAGE_TOKENS || headerBytes !== headerBytesOf(count) || bytes.length < headerBytes) return null;
  if (crc32(bytes.subarray(16, headerBytes)) !== bytes.readUInt32LE(12)) return null;
  const key = bytes.toString("hex", 32, 48);
  const parentKey = bytes.toString("hex", 48, 64);
  const tokens = Int32Array.from({ length: count }, (_, index) => bytes.readInt32LE(TOKENS_AT + 4 * index));
  if (pageKey(parentKey, tokens) !== key) return null;
  return {
    key,
    parentKey,
    start: bytes.readUInt32LE(24),
    tokens,
    payloadBytes: bytes.readUInt32LE(20),
    payloadChecksum: bytes.readUInt32LE(16),
    headerBytes,
  };
}
