/** Where a model is on this machine, without fetching it. */

import { listModels, parseModelReference } from "@kvasir/models";
import type { CommandContext } from "../context.ts";

/** Path of the model's file, or null when it has to be fetched first. */
export async function findModelFile(reference: string, { cacheDir, environment }: CommandContext): Promise<string | null> {
  const parsed = parseModelReference(reference);
  if (parsed.kind === "file") return parsed.path;
  const stored = await listModels({ cacheDir, env: environment });
  const name = parsed.kind === "catalogue" ? parsed.entry.name : reference;
  return stored.find((model) => [model.reference, model.catalogueName].includes(name) && model.isWhole)?.path ?? null;
}
