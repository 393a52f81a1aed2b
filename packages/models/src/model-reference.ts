/**
 * What `--model` takes:
 *
 *   path/to/model.gguf                              a file; of a split model the first shard
 *   hf:owner/repo[@revision][:file.gguf or quant]   a file of a hub repository
 *   smollm2-135m-instruct                           a name of the built-in catalogue
 */

import { homedir } from "node:os";
import { join } from "node:path";
import { CodedError } from "@kvasir/kit";
import { type CatalogueEntry, catalogue, findInCatalogue } from "./catalogue.ts";

export interface HubReference {
  readonly kind: "hub";
  /** `owner/repo` */
  readonly repo: string;
  /** Branch, tag or commit. */
  readonly revision: string;
  /** A file path in the repository, a quantization such as `Q4_K_M`, or null for the usual choice. */
  readonly selector: string | null;
}

export type ModelReference =
  | { readonly kind: "file"; readonly path: string }
  | HubReference
  | { readonly kind: "catalogue"; readonly entry: CatalogueEntry };

const DEFAULT_REVISION = "main";
const hubForm = /^(?<repo>[\w.-]+\/[\w.-]+)(?:@(?<revision>[^:\s]+))?(?::(?<selector>\S+))?$/;

/** @throws CodedError model_reference_invalid */
export function parseModelReference(text: string): ModelReference {
  if (text.startsWith("hf:")) return parseHubReference(text);
  if (/[\\/]/.test(text) || /\.gguf$/i.test(text)) {
    if (/^https?:\/\//i.test(text))
      throw invalidReference(text, "addresses are not taken; name the repository instead, hf:owner/repo:file.gguf");
    if (!/\.gguf$/i.test(text) && /^[\w.-]+\/[\w.-]+(?:@\S+)?(?::\S+)?$/.test(text)) {
      throw invalidReference(text, `it does not end in .gguf; for a repository of the hub write hf:${text}`);
    }
    return { kind: "file", path: text.startsWith("~/") ? join(homedir(), text.slice(2)) : text };
  }
  const entry = findInCatalogue(text);
  if (entry) return { kind: "catalogue", entry };
  throw invalidReference(text, `it is none of the catalogue's names (${catalogue.map(({ name }) => name).join(", ")})`);
}

function parseHubReference(text: string): HubReference {
  const groups = hubForm.exec(text.slice("hf:".length))?.groups;
  if (!groups?.["repo"]) throw invalidReference(text, "the form is hf:owner/repo[@revision][:file.gguf or quant]");
  return {
    kind: "hub",
    repo: groups["repo"],
    revision: groups["revision"] ?? DEFAULT_REVISION,
    selector: groups["selector"] ?? null,
  };
}

function invalidReference(text: string, reason: string): CodedError {
  return new CodedError(
    "model_reference_invalid",
    `--model "${text}": ${reason}. It takes a path to a .gguf file, hf:owner/repo[@revision][:file.gguf or quant], or a catalogue name`,
    { param: "model" },
  );
}

/** The text that `parseModelReference` reads back. */
export function formatHubReference(reference: HubReference): string {
  const revision = reference.revision === DEFAULT_REVISION ? "" : `@${reference.revision}`;
  return `hf:${reference.repo}${revision}${reference.selector === null ? "" : `:${reference.selector}`}`;
}
