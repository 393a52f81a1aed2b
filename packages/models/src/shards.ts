/** Split models: `NAME-00001-of-000NN.gguf` and its siblings (the naming of llama.cpp's gguf-split). */

import { stat } from "node:fs/promises";
import { basename } from "node:path";
import { CodedError } from "@kvasir/kit";

const shardName = /^(?<stem>.*)-(?<number>\d{5})-of-(?<count>\d{5})\.gguf$/i;

export interface ShardName {
  /** Path or name without the shard suffix and `.gguf`. */
  readonly stem: string;
  /** From 1. */
  readonly number: number;
  readonly count: number;
}

/** null for a file that is not named as a shard. */
export function parseShardName(path: string): ShardName | null {
  const groups = shardName.exec(path)?.groups;
  if (!groups?.["stem"]) return null;
  return { stem: groups["stem"], number: Number(groups["number"]), count: Number(groups["count"]) };
}

function shardPath(name: ShardName, number: number): string {
  const digits = (value: number): string => String(value).padStart(5, "0");
  return `${name.stem}-${digits(number)}-of-${digits(name.count)}.gguf`;
}

/** File names of all shards of the model that `path` belongs to, in order; `path` alone when it is not a shard. */
export function shardPaths(path: string): string[] {
  const name = parseShardName(path);
  if (!name) return [path];
  return Array.from({ length: name.count }, (_, index) => shardPath(name, index + 1));
}

/** Name of a model file for people: without folder, shard suffix and `.gguf`. */
export function modelStem(path: string): string {
  const name = basename(path);
  return parseShardName(name)?.stem ?? name.replace(/\.gguf$/i, "");
}

/**
 * All shards of the model, each of which exists.
 * @throws CodedError model_file_missing when the file or a shard is missing (each is named), or when `path` is not the first
 */
export async function findShards(path: string): Promise<string[]> {
  const name = parseShardName(path);
  if (name && name.number !== 1) {
    throw new CodedError(
      "model_reference_invalid",
      `${path} is shard ${name.number} of ${name.count}; pass the first one, ${shardPath(name, 1)}`,
    );
  }
  const paths = shardPaths(path);
  const missing: string[] = [];
  for (const shard of paths) if (!(await exists(shard))) missing.push(shard);
  if (missing.length === 0) return paths;
  if (!name) throw new CodedError("model_file_missing", `there is no model file ${path}`);
  throw new CodedError(
    "model_file_missing",
    `${missing.length} of ${name.count} shards are missing beside ${basename(path)}: ${missing.map((shard) => basename(shard)).join(", ")}`,
  );
}

/**
 * Checks what the first shard says about the split against how it is named: libllama finds the other shards by name.
 * @throws CodedError model_file_invalid
 */
export function checkSplit(path: string, shards: readonly string[], splitCount: number, splitNumber: number): void {
  if (Math.max(splitCount, 1) === shards.length && splitNumber === 0) return;
  throw new CodedError(
    "model_file_invalid",
    `${path} says that it is shard ${splitNumber + 1} of ${splitCount}, but its name says ${shards.length}; ` +
      "give the shards their names back (NAME-00001-of-000NN.gguf) and pass the first",
  );
}

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch {
    // not there, or not reachable: both mean that it cannot be loaded
    return false;
  }
}
