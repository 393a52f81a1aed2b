/** Bytes of a model's memory: what a token, and what a sequence, occupies in the engine's caches. */

import { invariant } from "@kvasir/kit";
import { type KvType, rowBytes } from "./ggml-types.ts";
import type { GgufFacts } from "./gguf-facts.ts";
import type { LayerFacts } from "./layer-facts.ts";

export interface KvTypes {
  readonly kType: KvType;
  readonly vType: KvType;
}

/**
 * Bytes of KV that one token occupies in a lane of the model itself: the sum over its attention layers of one key row and one
 * value row of all KV heads (llama.cpp v0.5.0, `llama-kv-cache.cpp`). MLA keeps its compressed key row alone. Layers with a
 * sliding window count in full, since the engine allocates them at full length (`swa_full`). Exact for grouped-query
 * attention, MLA, windows, hybrids and shared KV; an upper bound for sparse attention with shared indexers; the compressed
 * caches of deepseek4 and minimax-m3 follow rules of their own and are not covered.
 */
export function kvBytesPerToken(facts: GgufFacts, types: KvTypes): number {
  return sumLayers(facts, facts.layers, types);
}

/** The same for the context of the model's MTP layers, which exists only while they draft. */
export function mtpKvBytesPerToken(facts: GgufFacts, types: KvTypes): number {
  return sumLayers(facts, facts.mtpLayers, types);
}

function sumLayers(facts: GgufFacts, layers: readonly LayerFacts[], types: KvTypes): number {
  let total = 0;
  for (const layer of layers) {
    if (layer.memory !== "attention" && layer.memory !== "attention+recurrent") continue;
    total += rowBytes(types.kType, layer.keySize * layer.kvHeads);
    if (!facts.mla) total += rowBytes(types.vType, layer.valueSize * layer.kvHeads);
    if (facts.mla) total += rowBytes(types.kType, facts.mla.indexerKeySize);
  }
  return total;
}

const STATE_ELEMENT_BYTES = 4;

/**
 * Bytes of recurrent state of one sequence; 0 for a model without recurrent layers. The state is f32.
 * @param rollbackSnapshots snapshots the context keeps for rolling back drafts (`n_rs_seq`)
 */
export function recurrentStateBytes(facts: GgufFacts, rollbackSnapshots = 0): number {
  invariant(rollbackSnapshots >= 0, `rollbackSnapshots is ${rollbackSnapshots}`);
  if (!facts.recurrent) return 0;
  const layers = facts.layers.filter((layer) => layer.memory === "recurrent" || layer.memory === "attention+recurrent").length;
  const elements = facts.recurrent.convolutionElements + facts.recurrent.stateElements;
  return layers * elements * STATE_ELEMENT_BYTES * (1 + rollbackSnapshots);
}
