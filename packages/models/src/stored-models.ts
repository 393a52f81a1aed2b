/** The models on this machine: Kvasir's own cache and the shared hub cache. Nothing outside of them is ever removed. */

import { readdir, rm, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { CodedError } from "@kvasir/kit";
import { catalogue, findInCatalogue } from "./catalogue.ts";
import { type CachedFile, cachedRepositories, HubCache } from "./hub-cache.ts";
import { type Environment, readHubEnvironment } from "./hub-environment.ts";
import { modelsAmong, quantOf, selectModel } from "./model-files.ts";
import { modelsFolder } from "./model-options.ts";
import { parseModelReference } from "./model-reference.ts";
import { modelStem, parseShardName, shardPaths } from "./shards.ts";

export interface StoredModel {
  /** What `--model` takes for it: a catalogue name, a hub reference or a path. */
  readonly reference: string;
  /** Catalogue name, or null. */
  readonly catalogueName: string | null;
  readonly location: "kvasir" | "hub";
  /** First shard. */
  readonly path: string;
  readonly shards: readonly string[];
  /** Of all shards. */
  readonly bytes: number;
  /** All shards are there. */
  readonly isWhole: boolean;
}

export interface StoreOptions {
  readonly cacheDir: string;
  readonly env: Environment;
}

export interface RemovedModel {
  readonly paths: readonly string[];
  readonly freedBytes: number;
}

export async function listModels(options: StoreOptions): Promise<StoredModel[]> {
  const { cacheFolder } = await readHubEnvironment(options.env);
  const models = await listOwn(options.cacheDir);
  for (const repo of await cachedRepositories(cacheFolder))
    models.push(...(await listRepository(new HubCache(cacheFolder, repo))));
  return models;
}

async function listOwn(cacheDir: string): Promise<StoredModel[]> {
  const folder = modelsFolder(cacheDir);
  const names = new Set(await readdir(folder).catch(() => []));
  const models: StoredModel[] = [];
  for (const name of modelsAmong([...names].sort())) {
    const shards = shardPaths(name).filter((shard) => names.has(shard));
    const paths = shards.map((shard) => join(folder, shard));
    let bytes = 0;
    for (const path of paths) bytes += (await stat(path)).size;
    const entry = catalogue.find(({ file }) => file === name);
    const isWhole = shards.length === shardPaths(name).length && (entry === undefined || entry.bytes === bytes);
    const path = join(folder, name);
    models.push({
      reference: entry?.name ?? path,
      catalogueName: entry?.name ?? null,
      location: "kvasir",
      path,
      shards: paths,
      bytes,
      isWhole,
    });
  }
  return models;
}

async function listRepository(cache: HubCache): Promise<StoredModel[]> {
  const models: StoredModel[] = [];
  const seen = new Set<string>();
  for (const commit of await cache.commits()) {
    const files = await cache.files(commit);
    const paths = modelsAmong([...files.keys()]);
    for (const path of paths) {
      const shards = shardPaths(path).flatMap((name) => files.get(name) ?? []);
      const [first] = shards;
      if (!first || seen.has(first.blobPath)) continue;
      seen.add(first.blobPath);
      models.push(storedHubModel(cache.repo, path, paths, shards, first));
    }
  }
  return models;
}

function storedHubModel(
  repo: string,
  file: string,
  siblings: readonly string[],
  shards: readonly CachedFile[],
  first: CachedFile,
): StoredModel {
  const quant = quantOf(file);
  const isUnique = quant !== null && siblings.filter((other) => quantOf(other) === quant).length === 1;
  const entry = catalogue.find(({ sources }) =>
    sources.some((source) => source.kind === "hub" && source.repo === repo && source.file === file),
  );
  return {
    reference: entry?.name ?? `hf:${repo}:${isUnique ? quant : file}`,
    catalogueName: entry?.name ?? null,
    location: "hub",
    path: first.path,
    shards: shards.map(({ path }) => path),
    bytes: shards.reduce((total, { bytes }) => total + bytes, 0),
    isWhole: shards.length === (parseShardName(file)?.count ?? 1),
  };
}

/**
 * Removes a model from the caches.
 * @param name a catalogue name, a hub reference, or the name of a file in Kvasir's cache
 * @throws CodedError model_reference_invalid for a path elsewhere, model_file_missing when no cache holds it
 */
export async function removeModel(name: string, options: StoreOptions): Promise<RemovedModel> {
  const own = (await listOwn(options.cacheDir)).filter(({ path, catalogueName, shards }) =>
    [path, catalogueName, modelStem(path), ...shards.map((shard) => basename(shard))].includes(name),
  );
  const paths: string[] = [];
  let freedBytes = 0;
  for (const model of own) {
    for (const shard of model.shards) await rm(shard, { force: true });
    paths.push(...model.shards);
    freedBytes += model.bytes;
  }
  for (const { cache, files } of await findHubFiles(name, own.length > 0, options)) {
    freedBytes += await cache.remove(files);
    paths.push(...files.map(({ path }) => path));
  }
  if (paths.length === 0) {
    throw new CodedError("model_file_missing", `no cache holds ${name}; "kvasir models" lists what is there`, {
      param: "model",
    });
  }
  return { paths, freedBytes };
}

interface HubFiles {
  readonly cache: HubCache;
  readonly files: readonly CachedFile[];
}

async function findHubFiles(name: string, foundElsewhere: boolean, options: StoreOptions): Promise<HubFiles[]> {
  const entry = findInCatalogue(name);
  if (!entry && foundElsewhere) return [];
  const { cacheFolder } = await readHubEnvironment(options.env);
  if (entry) {
    const found: HubFiles[] = [];
    for (const source of entry.sources) {
      if (source.kind === "hub") found.push(...(await filesOf(cacheFolder, source.repo, source.file)));
    }
    return found;
  }
  const reference = parseModelReference(name);
  if (reference.kind === "hub") return filesOf(cacheFolder, reference.repo, reference.selector);
  throw new CodedError(
    "model_reference_invalid",
    `${name} is not in a cache of Kvasir or the hub; files elsewhere are yours and are not removed`,
    { param: "model" },
  );
}

async function filesOf(cacheFolder: string, repo: string, selector: string | null): Promise<HubFiles[]> {
  const cache = new HubCache(cacheFolder, repo);
  const files = new Map<string, CachedFile>();
  for (const commit of await cache.commits()) {
    const present = await cache.files(commit);
    if (modelsAmong([...present.keys()]).length === 0) continue;
    for (const shard of shardPaths(selectModel(repo, [...present.keys()], selector))) {
      const file = present.get(shard);
      if (file) files.set(file.blobPath, file);
    }
  }
  return files.size === 0 ? [] : [{ cache, files: [...files.values()] }];
}
