/** Size of the state that a recurrent layer keeps for a sequence, whatever its length. */

import type { GgufMetadata } from "./gguf-metadata.ts";

export interface RecurrentFacts {
  /** Elements of the convolution (or token-shift) state of one layer. */
  readonly convolutionElements: number;
  /** Elements of the recurrent state of one layer. */
  readonly stateElements: number;
}

/**
 * The formulas of `llama_hparams::n_embd_r` and `n_embd_s` (llama.cpp v0.5.0, `llama-hparams.cpp`).
 * @returns null for a model without recurrent layers
 */
export function readRecurrent(metadata: GgufMetadata, architecture: string): RecurrentFacts | null {
  const get = (name: string): number => metadata.number(`${architecture}.${name}`) ?? 0;
  const embedding = get("embedding_length");
  const heads = metadata.perLayer(`${architecture}.attention.head_count`, 1)?.[0] ?? 0;
  const convolutionKernel = get("ssm.conv_kernel");
  const wkvHeadSize = get("wkv.head_size");
  if (wkvHeadSize > 0) {
    const tokenShifts = metadata.number(`${architecture}.token_shift_count`) ?? 2;
    return { convolutionElements: tokenShifts * embedding, stateElements: embedding * wkvHeadSize };
  }
  const shortConvolution = get("shortconv.l_cache");
  if (shortConvolution > 0) return { convolutionElements: embedding * (shortConvolution - 1), stateElements: 0 };
  const kdaHeadSize = get("kda.head_dim");
  if (kdaHeadSize > 0) {
    const steps = convolutionKernel > 0 ? convolutionKernel - 1 : 3;
    return { convolutionElements: 3 * steps * heads * kdaHeadSize, stateElements: kdaHeadSize ** 2 * heads };
  }
  if (architecture === "minimax-01") {
    const headSize = get("attention.key_length") || Math.floor(embedding / Math.max(heads, 1));
    return { convolutionElements: 0, stateElements: headSize ** 2 * heads };
  }
  const innerSize = get("ssm.inner_size");
  const stateSize = get("ssm.state_size");
  if (innerSize === 0 || stateSize === 0) return null;
  const steps = Math.max(convolutionKernel - 1, 0);
  return {
    convolutionElements: steps * (innerSize + 2 * get("ssm.group_count") * stateSize),
    stateElements: stateSize * innerSize,
  };
}
