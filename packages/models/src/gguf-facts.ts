/**
 * Everything that Kvasir knows about a model before it is loaded, read once into one record that all packages use: which
 * architecture, how large, what its memory costs, how its tokenizer and chat template behave.
 */

import { CodedError } from "@kvasir/kit";
import { fileTypeName } from "./ggml-types.ts";
import { GgufMetadata } from "./gguf-metadata.ts";
import { type GgufHeader, readGgufHeader } from "./gguf-reader.ts";
import { type ModelLayers, readLayers } from "./layer-facts.ts";
import { type RecurrentFacts, readRecurrent } from "./recurrent-facts.ts";
import { checkSplit, findShards } from "./shards.ts";
import { type ChatTemplateSources, readChatTemplates, readTokenizer, type TokenizerFacts } from "./tokenizer-facts.ts";

export interface GgufFacts extends ModelLayers {
  readonly architecture: string;
  /** `general.name`, or null. */
  readonly name: string | null;
  /** What most weights are stored as, for example `Q4_K_M`. */
  readonly fileType: string;
  readonly license: string | null;
  /** Weights in all tensors. */
  readonly parameterCount: number;
  /** Bytes of all tensors; what loading takes, apart from buffers. */
  readonly tensorBytes: number;
  /** Bytes of all shards. */
  readonly fileBytes: number;
  readonly shardCount: number;
  /** Longest context the model was trained for. */
  readonly trainingContextTokens: number;
  readonly embeddingSize: number;
  readonly recurrent: RecurrentFacts | null;
  readonly mla: MlaFacts | null;
  readonly experts: ExpertFacts | null;
  readonly tokenizer: TokenizerFacts;
  readonly chatTemplates: ChatTemplateSources;
  /** What the model's makers recommend, where the file says so; missing fields are not recommended. */
  readonly sampling: RecommendedSampling;
}

/** Multi-head latent attention: one compressed row a token in place of keys and values. */
export interface MlaFacts {
  readonly keyValueRank: number;
  /** 0 when queries are not compressed. */
  readonly queryRank: number;
  readonly keySize: number;
  readonly valueSize: number;
  /** Elements of the indexer's key of a sparse-attention model, 0 without an indexer. */
  readonly indexerKeySize: number;
}

export interface ExpertFacts {
  readonly count: number;
  /** Experts that a token uses. */
  readonly used: number;
  readonly shared: number;
}

export interface RecommendedSampling {
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly repeatPenalty?: number;
  readonly repeatLastN?: number;
}

/**
 * @param path the model file; of a split model the first shard, whose siblings must stand beside it
 * @throws CodedError model_file_missing, model_file_invalid, model_file_truncated
 */
export async function readGgufFacts(path: string): Promise<GgufFacts> {
  const shards = await findShards(path);
  const headers: GgufHeader[] = [];
  for (const shard of shards) headers.push(await readGgufHeader(shard));
  const [first] = headers;
  if (!first) throw new CodedError("model_file_missing", `${path} has no shards`);
  const metadata = new GgufMetadata(path, first.metadata);
  checkSplit(path, shards, metadata.number("split.count") ?? 1, metadata.number("split.no") ?? 0);
  const architecture = metadata.string("general.architecture");
  if (architecture === undefined) {
    throw new CodedError("model_file_invalid", `${path} is not a usable GGUF model: the key general.architecture is missing`);
  }
  const tensors = headers.flatMap((header) => header.tensors);
  const fileType = metadata.number("general.file_type");
  return {
    ...readLayers(metadata, architecture),
    architecture,
    name: metadata.string("general.name") ?? null,
    fileType: fileType === undefined ? "unknown" : fileTypeName(fileType),
    license: metadata.string("general.license") ?? null,
    parameterCount: tensors.reduce((total, tensor) => total + tensor.elements, 0),
    tensorBytes: tensors.reduce((total, tensor) => total + tensor.bytes, 0),
    fileBytes: headers.reduce((total, header) => total + header.fileBytes, 0),
    shardCount: shards.length,
    trainingContextTokens: metadata.requiredNumber(`${architecture}.context_length`),
    embeddingSize: metadata.requiredNumber(`${architecture}.embedding_length`),
    recurrent: readRecurrent(metadata, architecture),
    mla: readMla(metadata, architecture),
    experts: readExperts(metadata, architecture),
    tokenizer: readTokenizer(metadata),
    chatTemplates: readChatTemplates(metadata),
    sampling: readSampling(metadata),
  };
}

function readMla(metadata: GgufMetadata, architecture: string): MlaFacts | null {
  const attention = (name: string): number => metadata.number(`${architecture}.attention.${name}`) ?? 0;
  const keySize = attention("key_length_mla");
  const valueSize = attention("value_length_mla");
  if (keySize === 0 || valueSize === 0) return null;
  return {
    keyValueRank: attention("kv_lora_rank"),
    queryRank: attention("q_lora_rank"),
    keySize,
    valueSize,
    indexerKeySize: attention("indexer.key_length"),
  };
}

function readExperts(metadata: GgufMetadata, architecture: string): ExpertFacts | null {
  const count = metadata.number(`${architecture}.expert_count`) ?? 0;
  if (count === 0) return null;
  return {
    count,
    used: Math.max(0, ...(metadata.perLayer(`${architecture}.expert_used_count`, 1) ?? [])),
    shared: metadata.number(`${architecture}.expert_shared_count`) ?? 0,
  };
}

function readSampling(metadata: GgufMetadata): RecommendedSampling {
  const names = {
    temperature: "temp",
    topK: "top_k",
    topP: "top_p",
    minP: "min_p",
    repeatPenalty: "penalty_repeat",
    repeatLastN: "penalty_last_n",
  } as const satisfies Record<keyof RecommendedSampling, string>;
  const found = Object.entries(names).flatMap(([field, name]) => {
    const value = metadata.number(`general.sampling.${name}`);
    return value === undefined ? [] : [[field, value] as const];
  });
  return Object.fromEntries(found);
}
