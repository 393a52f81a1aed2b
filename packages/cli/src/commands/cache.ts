/** `kvasir cache show | clear | verify`: the sessions that a server keeps on disk. */

import { join, resolve } from "node:path";
import { clearCache, describeCache, verifyCache } from "@kvasir/engine";
import { formatBytes, formatCount } from "@kvasir/kit";
import type { CommandContext } from "../context.ts";
import { renderTable } from "../table.ts";

/** The folder of `--disk-cache-folder`, else the one that servers use by default. */
export function cacheFolderOf(folder: string | null, context: CommandContext): string {
  return resolve(folder ?? join(context.cacheDir, "prefixes"));
}

export function showCache(folder: string, context: CommandContext): void {
  const { models, owner } = describeCache(folder);
  const user = owner === null ? "not in use" : `in use by ${owner === "unknown" ? "a server" : `process ${owner}`}`;
  context.stdout.write(`${folder} (${user})\n`);
  if (models.length === 0) {
    context.stdout.write("No sessions are stored.\n");
    return;
  }
  const day = (milliseconds: number | null): string =>
    milliseconds === null ? "" : new Date(milliseconds).toISOString().slice(0, 16).replace("T", " ");
  const rows = models.map(({ fingerprint, pages, bytes, oldestMs, newestMs }) => [
    fingerprint,
    `${formatCount(pages)} pages`,
    formatBytes(bytes),
    `${day(oldestMs)} to ${day(newestMs)} UTC`,
  ]);
  context.stdout.write(`One line a model, KV type and library:\n${renderTable(rows)}\n`);
}

export function clearStoredSessions(folder: string, context: CommandContext): void {
  const { files, bytes } = clearCache(folder);
  context.stdout.write(`removed ${formatCount(files)} files, ${formatBytes(bytes)} are free again\n`);
}

/** @returns whether every page is sound, or was removed */
export async function verifyStoredSessions(folder: string, remove: boolean, context: CommandContext): Promise<boolean> {
  const { files, bytes, bad, removedFiles } = await verifyCache(folder, { remove });
  for (const { path, reason } of bad) context.stdout.write(`${path}: ${reason}\n`);
  const verdict =
    bad.length === 0 ? "all sound" : remove ? `${removedFiles} bad ones removed` : `${bad.length} bad; --remove removes them`;
  context.stdout.write(`${formatCount(files)} pages, ${formatBytes(bytes)}: ${verdict}\n`);
  return bad.length === 0 || remove;
}
