/** `kvasir models` and `kvasir models rm NAME`. */

import { formatBytes } from "@kvasir/kit";
import { catalogue, DEFAULT_MODEL, listModels, removeModel, type StoredModel } from "@kvasir/models";
import type { CommandContext } from "../context.ts";
import { renderTable } from "../table.ts";

export async function showModels(asJson: boolean, context: CommandContext): Promise<void> {
  const stored = await listModels({ cacheDir: context.cacheDir, env: context.environment });
  if (asJson) {
    context.stdout.write(`${JSON.stringify({ stored, catalogue }, null, 2)}\n`);
    return;
  }
  const isHere = (name: string): boolean => stored.some((model) => model.catalogueName === name && model.isWhole);
  const offered = catalogue.filter(({ name }) => !isHere(name));
  const here = stored.map((model) => [model.reference, formatBytes(model.bytes), noteOf(model)]);
  context.stdout.write(stored.length === 0 ? "No model is here yet.\n" : `Here:\n${renderTable(here)}\n`);
  if (offered.length === 0) return;
  const rows = offered.map(({ name, bytes, description }) => [
    name,
    formatBytes(bytes),
    `${description}${name === DEFAULT_MODEL ? " (default)" : ""}`,
  ]);
  context.stdout.write(`\nBy name, fetched when it is used or by \`kvasir pull NAME\`:\n${renderTable(rows)}\n`);
}

function noteOf(model: StoredModel): string {
  if (!model.isWhole) return "incomplete";
  if (model.catalogueName === DEFAULT_MODEL) return "default";
  return model.location === "hub" ? "in the hub cache" : "";
}

export async function removeStoredModel(name: string, context: CommandContext): Promise<void> {
  const { paths, freedBytes } = await removeModel(name, { cacheDir: context.cacheDir, env: context.environment });
  for (const path of paths) context.stdout.write(`removed ${path}\n`);
  context.stdout.write(`${formatBytes(freedBytes)} are free again\n`);
}
