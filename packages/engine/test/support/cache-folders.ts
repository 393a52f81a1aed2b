/** Real folders for cache tests, removed after each test. */

import { chmodSync, chownSync, lstatSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";

export function makeCacheFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "kvasir-store-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Paths of all page files of a model, in no order. */
export function pageFiles(folder: string, fingerprint = "model-a"): string[] {
  return readdirSync(join(folder, fingerprint))
    .filter((name) => name.endsWith(".page"))
    .map((name) => join(folder, fingerprint, name));
}

const NOBODY = 65_534;

/** Runs `work` as a user to whom file modes apply: root may write into read-only folders. */
export async function asOrdinaryUser(folder: string, work: () => Promise<void>): Promise<void> {
  if (process.getuid?.() !== 0) return work();
  for (const path of walk(folder)) chownSync(path, NOBODY, NOBODY);
  process.seteuid?.(NOBODY);
  try {
    await work();
  } finally {
    process.seteuid?.(0);
  }
}

/** Takes away, or gives back, the right to change a cache folder. */
export function setWritable(folder: string, isWritable: boolean): void {
  for (const path of walk(folder)) if (lstatSync(path).isDirectory()) chmodSync(path, isWritable ? 0o700 : 0o500);
}

function walk(path: string): string[] {
  if (!lstatSync(path).isDirectory()) return [path];
  return [path, ...readdirSync(path).flatMap((name) => walk(join(path, name)))];
}
