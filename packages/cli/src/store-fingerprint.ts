/**
 * What must be equal for stored KV to be used again: the model's content, the type of the cells, the layout of their rows, and
 * the library that computed them. A folder name of the disk tier.
 */

import { createHash } from "node:crypto";
import { closeSync, fstatSync, openSync, readFileSync, readSync } from "node:fs";

const SAMPLE_BYTES = 1 << 20;

/**
 * @param modelPath of a split model the first shard
 * @param libraryFile libllama itself
 */
export function storeFingerprint(modelPath: string, kvDtype: string, rowBytes: readonly number[], libraryFile: string): string {
  const hash = createHash("sha256")
    .update(`${kvDtype}\0${rowBytes.join(",")}\0`)
    .update(readFileSync(libraryFile));
  const file = openSync(modelPath, "r");
  try {
    const { size } = fstatSync(file);
    const sample = Buffer.alloc(SAMPLE_BYTES);
    // Header with all metadata and tensor places, a middle and the end of the weights: a changed model changes one of them.
    for (const at of [0, Math.floor(size / 2), Math.max(0, size - SAMPLE_BYTES)]) {
      hash.update(sample.subarray(0, readSync(file, sample, 0, SAMPLE_BYTES, at)));
    }
    return hash.update(String(size)).digest("hex").slice(0, 32);
  } finally {
    closeSync(file);
  }
}
