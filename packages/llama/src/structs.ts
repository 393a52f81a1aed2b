/**
 * The C structs that cross the border, as koffi types, and the enum values that go into them.
 *
 * This file is the only place that knows layouts. Everything here is checked at start against `abi/layout.json`, which a C
 * program prints from the headers of the release (`abi-layout.ts`), and against the library's own defaults
 * (`abi-defaults.ts`): a wrong layout would not fail, it would corrupt. Field order and types follow the headers.
 */

import koffi, { type TypeObject } from "koffi";

/** A C address. koffi gives null for NULL. */
export type Address = bigint;

const { int8, int32, uint32, int64, float, bool, size_t } = koffi.types;
const address = koffi.pointer(koffi.types.void);

export const modelParamsType = koffi.struct({
  devices: address,
  tensor_buft_overrides: address,
  n_gpu_layers: int32,
  split_mode: int32,
  load_mode: int32,
  lazy_mode: int32,
  main_gpu: int32,
  tensor_split: address,
  progress_callback: address,
  progress_callback_user_data: address,
  kv_overrides: address,
  vocab_only: bool,
  check_tensors: bool,
  use_extra_bufts: bool,
  no_host: bool,
  no_alloc: bool,
  load_mtp: bool,
});

export const contextParamsType = koffi.struct({
  n_ctx: uint32,
  n_batch: uint32,
  n_ubatch: uint32,
  n_seq_max: uint32,
  n_rs_seq: uint32,
  n_outputs_max: uint32,
  n_outputs_max_per_seq: uint32,
  n_threads: int32,
  n_threads_batch: int32,
  ctx_type: int32,
  rope_scaling_type: int32,
  pooling_type: int32,
  attention_type: int32,
  flash_attn_type: int32,
  rope_freq_base: float,
  rope_freq_scale: float,
  yarn_ext_factor: float,
  yarn_attn_factor: float,
  yarn_beta_fast: float,
  yarn_beta_slow: float,
  yarn_orig_ctx: uint32,
  defrag_thold: float,
  cb_eval: address,
  cb_eval_user_data: address,
  type_k: int32,
  type_v: int32,
  abort_callback: address,
  abort_callback_data: address,
  embeddings: bool,
  offload_kqv: bool,
  no_perf: bool,
  op_offload: bool,
  swa_full: bool,
  kv_unified: bool,
  samplers: address,
  n_samplers: size_t,
  ctx_other: address,
});

export const batchType = koffi.struct({
  n_tokens: int32,
  token: address,
  embd: address,
  pos: address,
  n_seq_id: address,
  seq_id: address,
  logits: address,
});

export const threadpoolParamsType = koffi.struct({
  cpumask: koffi.array(int8, 512),
  n_threads: int32,
  prio: int32,
  poll: uint32,
  strict_cpu: bool,
  paused: bool,
});

/** Only the head of `ggml_tensor`: what `ggml_is_empty` reads. `abort-flag.ts` says what for. */
export const tensorHeadType = koffi.struct({
  type: int32,
  buffer: address,
  ne: koffi.array(int64, 4),
  nb: koffi.array(size_t, 4),
});

/** By the names of the headers. The size of `ggml_tensor` is not compared: only its head is declared. */
export const structTypes: Readonly<Record<string, TypeObject>> = {
  llama_model_params: modelParamsType,
  llama_context_params: contextParamsType,
  llama_batch: batchType,
  ggml_threadpool_params: threadpoolParamsType,
  ggml_tensor: tensorHeadType,
};

export interface ModelParams {
  n_gpu_layers: number;
  progress_callback: Address | null;
  vocab_only: boolean;
  [otherField: string]: unknown;
}

export interface ContextParams {
  n_ctx: number;
  n_batch: number;
  n_ubatch: number;
  n_seq_max: number;
  n_outputs_max: number;
  n_threads: number;
  n_threads_batch: number;
  flash_attn_type: number;
  type_k: number;
  type_v: number;
  offload_kqv: boolean;
  no_perf: boolean;
  op_offload: boolean;
  swa_full: boolean;
  kv_unified: boolean;
  [otherField: string]: unknown;
}

export interface BatchStruct {
  n_tokens: number;
  token: Address;
  embd: null;
  pos: Address;
  n_seq_id: Address;
  seq_id: Address;
  logits: Address;
}

/** Enum values and macros by the names of the headers; `abi-layout.ts` compares them too. */
export const constants = {
  LLAMA_FLASH_ATTN_TYPE_ENABLED: 1,
  LLAMA_VOCAB_TYPE_NONE: 0,
  LLAMA_TOKEN_NULL: -1,
  LLAMA_TOKEN_ATTR_UNKNOWN: 1,
  LLAMA_TOKEN_ATTR_CONTROL: 8,
  LLAMA_STATE_SEQ_FLAGS_NONE: 0,
  GGML_TYPE_F32: 0,
  GGML_TYPE_F16: 1,
  GGML_TYPE_BF16: 30,
  GGML_TYPE_Q4_0: 2,
  GGML_TYPE_Q4_1: 3,
  GGML_TYPE_Q5_0: 6,
  GGML_TYPE_Q5_1: 7,
  GGML_TYPE_Q8_0: 8,
  GGML_LOG_LEVEL_DEBUG: 1,
  GGML_LOG_LEVEL_INFO: 2,
  GGML_LOG_LEVEL_WARN: 3,
  GGML_LOG_LEVEL_ERROR: 4,
  GGML_LOG_LEVEL_CONT: 5,
  GGML_BACKEND_DEVICE_TYPE_CPU: 0,
  GGML_BACKEND_DEVICE_TYPE_GPU: 1,
  GGML_BACKEND_DEVICE_TYPE_IGPU: 2,
} as const;
