/** Models of the hub: found in the shared cache, or brought into it. */

import { CodedError } from "@kvasir/kit";
import { HubCache } from "./hub-cache.ts";
import { downloadToCache } from "./hub-download.ts";
import { readHubEnvironment } from "./hub-environment.ts";
import { type HubFile, type HubListing, HubRepository } from "./hub-repository.ts";
import { selectModel, USUAL_QUANT } from "./model-files.ts";
import type { CompleteModelOptions } from "./model-options.ts";
import { shardPaths } from "./shards.ts";

export interface HubSelection {
  readonly repo: string;
  readonly revision: string;
  readonly selector: string | null;
}

export interface HubModel {
  /** First shard. */
  readonly path: string;
  readonly shards: readonly string[];
  readonly commit: string;
  /** Path of the first shard in the repository. */
  readonly file: string;
}

/**
 * The model as the cache has it, whole, without asking the hub; null when it is not there.
 * @param choice what to do when the reference names no file: take only what the hub would choose too, or whatever single model
 *   is there, because the hub cannot be asked
 */
export async function findInHubCache(
  selection: HubSelection,
  options: CompleteModelOptions,
  choice: "certain" | "whatever-is-there" = "certain",
): Promise<HubModel | null> {
  const environment = await readHubEnvironment(options.env);
  const cache = new HubCache(environment.cacheFolder, selection.repo);
  const commit = await cache.commitOf(selection.revision);
  if (commit === null) return null;
  const files = await cache.files(commit);
  const selector = selection.selector ?? (choice === "certain" ? USUAL_QUANT : null);
  try {
    const file = selectModel(selection.repo, [...files.keys()], selector);
    const names = shardPaths(file);
    const shards = names.flatMap((name) => files.get(name)?.path ?? []);
    const [path] = shards;
    return path === undefined || shards.length < names.length ? null : { path, shards, commit, file };
  } catch (error) {
    if (error instanceof CodedError && error.code === "model_reference_invalid") return null;
    throw error;
  }
}

/**
 * Brings all shards into the cache.
 * @param expected what the file must be, where the caller knows it; the hub's own record must say the same
 * @throws CodedError model_download_failed, model_checksum_mismatch, model_reference_invalid
 */
export async function pullFromHub(
  selection: HubSelection,
  options: CompleteModelOptions,
  expected?: { readonly bytes: number; readonly sha256: string },
): Promise<HubModel> {
  const environment = await readHubEnvironment(options.env);
  if (environment.offline) {
    const found = await findInHubCache(selection, options, "whatever-is-there");
    if (found) return found;
    throw new CodedError(
      "model_download_failed",
      `HF_HUB_OFFLINE is set and ${environment.cacheFolder} does not hold ${selection.repo} ${selection.selector ?? ""}`.trimEnd(),
    );
  }
  const repository = new HubRepository(selection.repo, environment, options.signal);
  const listing = await repository.list(selection.revision);
  const file = selectModel(
    selection.repo,
    listing.files.map(({ path }) => path),
    selection.selector,
  );
  const files = shardPaths(file).map((path) => fileOf(listing, path, selection.repo));
  if (expected) checkExpected(files, expected, selection.repo);
  const cache = new HubCache(environment.cacheFolder, selection.repo);
  const shards: string[] = [];
  for (const shard of files) shards.push(await downloadToCache(repository, cache, listing.commit, shard, options));
  await cache.rememberRevision(selection.revision, listing.commit);
  return { path: cache.snapshotPath(listing.commit, file), shards, commit: listing.commit, file };
}

function fileOf(listing: HubListing, path: string, repo: string): HubFile {
  const found = listing.files.find((file) => file.path === path);
  if (found) return found;
  throw new CodedError("model_download_failed", `the shard ${path} is missing in ${repo} at commit ${listing.commit}`);
}

function checkExpected(files: readonly HubFile[], expected: { bytes: number; sha256: string }, repo: string): void {
  const [file] = files;
  if (files.length === 1 && file?.bytes === expected.bytes && file.sha256 === expected.sha256) return;
  throw new CodedError(
    "model_checksum_mismatch",
    `${file?.path} in ${repo} has ${file?.bytes} bytes and SHA-256 ${file?.sha256}, expected are ${expected.bytes} and ${expected.sha256}`,
  );
}
