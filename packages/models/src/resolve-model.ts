/** From what a person writes after `--model` to a file that can be loaded, with its facts. */

import { resolve } from "node:path";
import { assertNever, CodedError, formatCount } from "@kvasir/kit";
import { findCatalogueModel, pullCatalogueModel } from "./catalogue-pull.ts";
import { type GgufFacts, readGgufFacts } from "./gguf-facts.ts";
import { findInHubCache, type HubModel, pullFromHub } from "./hub-models.ts";
import { checkRunnable, usableMemoryBytes } from "./model-checks.ts";
import { type CompleteModelOptions, completeOptions, type ModelOptions } from "./model-options.ts";
import { type HubReference, type ModelReference, parseModelReference } from "./model-reference.ts";
import { modelStem, shardPaths } from "./shards.ts";

export type ModelSource =
  | { readonly kind: "file" }
  | { readonly kind: "hub"; readonly repo: string; readonly commit: string; readonly file: string }
  | { readonly kind: "catalogue"; readonly name: string };

export interface ResolvedModel {
  /** The file to load: of a split model the first shard. */
  readonly path: string;
  /** All files, `path` first. */
  readonly shards: readonly string[];
  /** For people. */
  readonly name: string;
  /** For requests: what `/v1/models` lists. */
  readonly id: string;
  readonly facts: GgufFacts;
  readonly source: ModelSource;
}

export interface ResolveOptions extends ModelOptions {
  /** Memory that can hold the weights. Default: what this process may use. */
  readonly memoryBytes?: number;
}

interface LocatedModel {
  readonly path: string;
  readonly id: string;
  readonly source: ModelSource;
}

type PullableReference = Exclude<ModelReference, { readonly kind: "file" }>;

/**
 * Finds the model, loads it when it is not there, reads its facts and refuses what cannot run. A model that is in a cache is
 * used as it is, without asking anybody; `pullModel` looks for a newer one.
 * @throws CodedError model_reference_invalid, model_file_missing, model_file_invalid, model_file_truncated,
 *   model_architecture_unknown, model_too_large, model_download_failed, model_checksum_mismatch
 */
export async function resolveModel(reference: string, options: ResolveOptions): Promise<ResolvedModel> {
  const complete = completeOptions(options);
  const parsed = parseModelReference(reference);
  const located = parsed.kind === "file" ? locatedFile(parsed.path) : await findOrLoad(parsed, complete);
  const model = await describe(located);
  checkRunnable(model.path, model.facts, options.memoryBytes ?? usableMemoryBytes());
  return model;
}

/** Path of the model's file as `resolveModel` would find it, or null when it has to be loaded first. Asks nobody. */
export async function findModelPath(reference: string, options: ModelOptions): Promise<string | null> {
  const parsed = parseModelReference(reference);
  if (parsed.kind === "file") return resolve(parsed.path);
  return (await findModel(parsed, completeOptions(options)))?.path ?? null;
}

/** Loads the model, the newest of a hub branch, also one that this machine could not run. Errors as for `resolveModel`. */
export async function pullModel(reference: string, options: ModelOptions): Promise<ResolvedModel> {
  const parsed = parseModelReference(reference);
  if (parsed.kind === "file") {
    throw new CodedError("model_reference_invalid", `${reference} is a file; nothing has to be pulled for it`, {
      param: "model",
    });
  }
  return describe(await loadModel(parsed, completeOptions(options)));
}

async function findOrLoad(reference: PullableReference, options: CompleteModelOptions): Promise<LocatedModel> {
  const found = await findModel(reference, options);
  if (found) return found;
  try {
    return await loadModel(reference, options);
  } catch (error) {
    if (reference.kind !== "hub" || !(error instanceof CodedError) || error.code !== "model_download_failed") throw error;
    const cached = await findInHubCache(reference, options, "whatever-is-there");
    if (!cached) throw error;
    return locatedHub(reference, cached);
  }
}

async function findModel(reference: PullableReference, options: CompleteModelOptions): Promise<LocatedModel | null> {
  switch (reference.kind) {
    case "hub": {
      const found = await findInHubCache(reference, options);
      return found && locatedHub(reference, found);
    }
    case "catalogue": {
      const { name } = reference.entry;
      const path = await findCatalogueModel(reference.entry, options);
      return path === null ? null : { path, id: name, source: { kind: "catalogue", name } };
    }
    default:
      return assertNever(reference);
  }
}

async function loadModel(reference: PullableReference, options: CompleteModelOptions): Promise<LocatedModel> {
  switch (reference.kind) {
    case "hub":
      return locatedHub(reference, await pullFromHub(reference, options));
    case "catalogue": {
      const { name } = reference.entry;
      return { path: await pullCatalogueModel(reference.entry, options), id: name, source: { kind: "catalogue", name } };
    }
    default:
      return assertNever(reference);
  }
}

/** Absolute, because the engine's process may work in another folder. */
function locatedFile(path: string): LocatedModel {
  return { path: resolve(path), id: modelStem(path), source: { kind: "file" } };
}

function locatedHub(reference: HubReference, { path, commit, file }: HubModel): LocatedModel {
  return { path, id: modelStem(file), source: { kind: "hub", repo: reference.repo, commit, file } };
}

async function describe({ path, id, source }: LocatedModel): Promise<ResolvedModel> {
  const facts = await readGgufFacts(path);
  return { path, shards: shardPaths(path), name: facts.name ?? id, id, facts, source };
}

/** `SmolLM2 135M, llama, Q4_1, 134,515,008 parameters, context 8,192` */
export function summarizeModel({ name, facts }: ResolvedModel): string {
  const parameters = `${formatCount(facts.parameterCount)} parameters`;
  return [name, facts.architecture, facts.fileType, parameters, `context ${formatCount(facts.trainingContextTokens)}`].join(
    ", ",
  );
}
