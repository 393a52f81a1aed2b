/** Choosing a model among the files of a repository: by file name, by quantization, or the usual one. */

import { posix } from "node:path";
import { CodedError } from "@kvasir/kit";
import { parseShardName, shardPaths } from "./shards.ts";

/** Files that end in .gguf but are not language models. */
const notModels = /(^|[-_.])(mmproj|imatrix)([-_.]|$)/i;
const quantLabel =
  /(?:^|[-_./])((?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|BF16|F(?:P)?16|F(?:P)?32|MXFP4(?:_MOE)?|NVFP4))(?=$|[-.])/gi;
/** What is taken when a reference names no quantization. */
export const USUAL_QUANT = "Q4_K_M";

/** `Qwen3.6-35B-A3B-UD-Q4_K_M.gguf` → `UD-Q4_K_M`; null when the name gives none. */
export function quantOf(path: string): string | null {
  const stem = parseShardName(path)?.stem ?? path.replace(/\.gguf$/i, "");
  return [...stem.matchAll(quantLabel)].at(-1)?.[1]?.toUpperCase() ?? null;
}

/** The models among `paths`: each as its first shard, or its only file. */
export function modelsAmong(paths: readonly string[]): string[] {
  return paths.filter(
    (path) => /\.gguf$/i.test(path) && !notModels.test(posix.basename(path)) && (parseShardName(path)?.number ?? 1) === 1,
  );
}

/**
 * The model that `selector` names, as its first shard.
 * @param repo names the repository in errors
 * @param selector a file path or name, a quantization in any case, or null: the only model, else the `Q4_K_M` one
 * @throws CodedError model_reference_invalid when none or several match; the message lists the candidates
 */
export function selectModel(repo: string, paths: readonly string[], selector: string | null): string {
  const models = modelsAmong(paths);
  if (models.length === 0)
    throw new CodedError("model_reference_invalid", `hf:${repo} holds no .gguf model`, { param: "model" });
  if (selector === null) {
    const [only] = models;
    if (models.length === 1 && only !== undefined) return only;
    return single(repo, models, matchQuant(models, USUAL_QUANT), "several models; name one");
  }
  if (/\.gguf$/i.test(selector)) {
    const wanted = selector.toLowerCase();
    const shard = parseShardName(selector);
    const first = shard ? (shardPaths(selector)[0] ?? selector).toLowerCase() : wanted;
    const exact = models.filter((path) => path.toLowerCase() === first);
    const byName = models.filter((path) => posix.basename(path).toLowerCase() === first);
    return single(repo, models, exact.length > 0 ? exact : byName, `no file "${selector}"`);
  }
  return single(repo, models, matchQuant(models, selector), `no single file with the quantization "${selector}"`);
}

/** Files with exactly this label; failing that, those with it behind the prefix `UD-`. */
function matchQuant(models: readonly string[], quant: string): string[] {
  const wanted = quant.toUpperCase();
  const exact = models.filter((path) => quantOf(path) === wanted);
  return exact.length > 0 ? exact : models.filter((path) => quantOf(path) === `UD-${wanted}`);
}

function single(repo: string, models: readonly string[], matches: readonly string[], problem: string): string {
  const [match] = matches;
  if (matches.length === 1 && match !== undefined) return match;
  const candidates = matches.length > 1 ? matches : models;
  throw new CodedError("model_reference_invalid", `hf:${repo} has ${problem}. It has: ${candidates.join(", ")}`, {
    param: "model",
  });
}
