/** Deterministic noise of the scripted backend: integer hashing only, the same on every machine. */

/** Hash of a prefix after one more token, from the hash of the prefix before it (32-bit murmur3 step and finalizer). */
export function hashPrefix(hash: number, token: number): number {
  let mixed = Math.imul(token + 0x9e3779b9, 0xcc9e2d51);
  mixed = Math.imul((mixed << 15) | (mixed >>> 17), 0x1b873593) ^ hash;
  mixed = (Math.imul((mixed << 13) | (mixed >>> 19), 5) + 0xe6546b64) >>> 0;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}

/** A logit in (-8, 8) of `token` after the prefix with this hash: uniform, with 32 random bits. */
export function noiseOf(hash: number, token: number): number {
  return (hashPrefix(hash, token + 0x51ed270b) / 2 ** 32) * 16 - 8;
}
