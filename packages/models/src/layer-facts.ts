/**
 * What each layer of a model remembers, derived from the metadata the way libllama v0.5.0 does it (`load_arch_hparams` of its
 * model files). Only what the size and the behaviour of the memory depend on.
 */

import type { GgufMetadata } from "./gguf-metadata.ts";

/**
 * attention: KV of every token. recurrent: a state of fixed size. attention+recurrent: both side by side. feed-forward:
 * nothing. shared: attends to the KV of an earlier layer.
 */
export type LayerMemory = "attention" | "recurrent" | "attention+recurrent" | "feed-forward" | "shared";

export interface LayerFacts {
  readonly memory: LayerMemory;
  /** Query heads. */
  readonly heads: number;
  readonly kvHeads: number;
  /** Elements of one key of one head; for MLA the compressed row. */
  readonly keySize: number;
  readonly valueSize: number;
  /** The layer sees only the last `slidingWindowTokens`. */
  readonly windowed: boolean;
}

export interface ModelLayers {
  /** Layers that compute the output, in order. */
  readonly layers: readonly LayerFacts[];
  /** Next-token-prediction (MTP) layers, which draft. */
  readonly mtpLayers: readonly LayerFacts[];
  readonly slidingWindowTokens: number | null;
  /** Full attention in every Nth layer of a hybrid that is given by such an interval. */
  readonly fullAttentionInterval: number | null;
}

const recurrentArchitectures: ReadonlySet<string> = new Set(["mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"]);

/** Hybrids whose recurrent layers are those without KV heads. */
const hybridByKvHeads: ReadonlySet<string> = new Set([
  "jamba",
  "plamo2",
  "granitehybrid",
  "lfm2",
  "lfm2moe",
  "kimi-linear",
  "kimi-k3",
  "bailingmoe3",
]);

/** Hybrids with full attention in every Nth layer, unless the file lists the recurrent layers. */
const hybridByInterval: ReadonlyMap<string, number> = new Map([
  ["qwen3next", 4],
  ["qwen35", 4],
  ["qwen35moe", 4],
  ["qwen4exp", 4],
  ["minimax-01", 8],
]);

/** A hybrid in which each layer is one of three: recurrent, attention or feed-forward. */
const hybridByFeedForward: ReadonlySet<string> = new Set(["nemotron_h", "nemotron_h_moe"]);

interface WindowPattern {
  /** Every Nth layer is full; 0 means that all are windowed. */
  readonly interval: number;
  /** The full layer comes first in its group, not last. */
  readonly fullFirst?: boolean;
  /** Window of a file that does not name one. */
  readonly defaultTokens?: number;
}

/** Window patterns of architectures whose files need not give one. */
const windowPatterns: ReadonlyMap<string, WindowPattern> = new Map<string, WindowPattern>([
  ["afmoe", { interval: 4 }],
  ["cohere2", { interval: 4 }],
  ["deepseek4", { interval: 0 }],
  ["cohere2moe", { interval: 4, fullFirst: true }],
  ["exaone-moe", { interval: 4, defaultTokens: 128 }],
  ["exaone4", { interval: 4 }],
  ["gemma2", { interval: 2, defaultTokens: 4096 }],
  ["gemma3", { interval: 6 }],
  ["gemma3n", { interval: 5 }],
  ["gpt-oss", { interval: 2 }],
  ["laguna", { interval: 4, fullFirst: true }],
  ["lfm2", { interval: 0 }],
  ["llama4", { interval: 4, defaultTokens: 8192 }],
  ["mellum", { interval: 4 }],
  ["muse-glimmer", { interval: 4 }],
  ["olmo2", { interval: 4 }],
  ["plamo3", { interval: 8 }],
  ["smallthinker", { interval: 4, fullFirst: true }],
]);

/** Their files name a window that libllama does not use. */
const ignoredWindows: ReadonlySet<string> = new Set(["phi3"]);

/** `LLAMA_MAX_LAYERS` of libllama. */
const MAX_LAYERS = 512;

export function readLayers(metadata: GgufMetadata, architecture: string): ModelLayers {
  const key = (name: string): string => `${architecture}.${name}`;
  const total = metadata.requiredCount(key("block_count"), MAX_LAYERS);
  const mtpCount = Math.min(metadata.number(key("nextn_predict_layers")) ?? 0, total);
  const trunk = total - mtpCount;
  const embedding = metadata.requiredNumber(key("embedding_length"));
  const zeros = Array.from({ length: total }, () => 0);
  const heads = metadata.perLayer(key("attention.head_count"), total) ?? zeros;
  const kvHeads = metadata.perLayer(key("attention.head_count_kv"), total) ?? heads;
  const feedForward = metadata.perLayer(key("feed_forward_length"), total) ?? zeros;
  const defaultSize = (heads[0] ?? 0) > 0 ? Math.floor(embedding / (heads[0] ?? 1)) : 0;
  const full = {
    keySize: metadata.number(key("attention.key_length")) ?? defaultSize,
    valueSize: metadata.number(key("attention.value_length")) ?? defaultSize,
  };
  const windowedSizes = {
    keySize: metadata.number(key("attention.key_length_swa")) ?? full.keySize,
    valueSize: metadata.number(key("attention.value_length_swa")) ?? full.valueSize,
  };
  const window = readWindow(metadata, architecture, trunk);
  const fullAttentionInterval = metadata.number(key("full_attention_interval")) ?? hybridByInterval.get(architecture) ?? null;
  const listedRecurrent = metadata.perLayer(key("attention.recurrent_layers"), total);
  const sharedFrom = firstSharedLayer(metadata, architecture, total);

  const memoryOf = (index: number): LayerMemory => {
    const layerKvHeads = kvHeads[index] ?? 0;
    if (recurrentArchitectures.has(architecture)) return "recurrent";
    if (architecture === "falcon-h1") return "attention+recurrent";
    if (index >= sharedFrom) return "shared";
    if (index < trunk) {
      if (hybridByInterval.has(architecture)) {
        const recurrent = listedRecurrent ? listedRecurrent[index] !== 0 : (index + 1) % (fullAttentionInterval ?? 1) !== 0;
        return recurrent ? "recurrent" : "attention";
      }
      if (hybridByFeedForward.has(architecture) && layerKvHeads === 0)
        return feedForward[index] === 0 ? "recurrent" : "feed-forward";
      if (hybridByKvHeads.has(architecture) && layerKvHeads === 0) return "recurrent";
    }
    return layerKvHeads === 0 ? "feed-forward" : "attention";
  };
  const all = zeros.map((_, index): LayerFacts => {
    const windowed = window.layers[index] ?? false;
    const sizes = windowed ? windowedSizes : full;
    return { memory: memoryOf(index), heads: heads[index] ?? 0, kvHeads: kvHeads[index] ?? 0, ...sizes, windowed };
  });
  return {
    layers: all.slice(0, trunk),
    mtpLayers: all.slice(trunk),
    slidingWindowTokens: window.tokens,
    fullAttentionInterval: hybridByInterval.has(architecture) && !listedRecurrent ? fullAttentionInterval : null,
  };
}

function readWindow(
  metadata: GgufMetadata,
  architecture: string,
  trunk: number,
): { tokens: number | null; layers: readonly boolean[] } {
  const none = { tokens: null, layers: [] };
  const pattern = windowPatterns.get(architecture);
  const tokens = metadata.number(`${architecture}.attention.sliding_window`) ?? pattern?.defaultTokens ?? 0;
  // exaone4 has windows only in its 64-layer size
  if (tokens === 0 || ignoredWindows.has(architecture) || (architecture === "exaone4" && trunk !== 64)) return none;
  const patternKey = `${architecture}.attention.sliding_window_pattern`;
  const listed = metadata.isArray(patternKey) ? metadata.perLayer(patternKey, trunk) : undefined;
  if (listed) return { tokens, layers: listed.map((windowed) => windowed !== 0) };
  const interval = metadata.number(patternKey) ?? pattern?.interval;
  if (interval === undefined) return none;
  const fullPosition = pattern?.fullFirst ? 0 : interval - 1;
  const layers = Array.from({ length: trunk }, (_, index) => interval === 0 || index % interval !== fullPosition);
  return { tokens, layers };
}

/** First layer that has no KV of its own. */
function firstSharedLayer(metadata: GgufMetadata, architecture: string, total: number): number {
  if (architecture === "gemma3n") return 20;
  if (architecture === "gemma4") return total - (metadata.number("gemma4.attention.shared_kv_layers") ?? 0);
  return total;
}
