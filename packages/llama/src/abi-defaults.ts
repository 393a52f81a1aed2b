/**
 * ABI check 3: the library's own default parameters, read through our declarations, have the values of the release. A field
 * that upstream inserted shifts those behind it, and shows here.
 */

import { CodedError } from "@kvasir/kit";
import { libraryRelease } from "./library-location.ts";

type Defaults = Readonly<Record<string, number | boolean | null>>;

/** `llama_model_default_params()` of v0.5.0 (src/llama-model.cpp). */
export const modelDefaults: Defaults = {
  devices: null,
  tensor_buft_overrides: null,
  n_gpu_layers: -1,
  split_mode: 1,
  load_mode: -1,
  lazy_mode: 1,
  main_gpu: 0,
  tensor_split: null,
  progress_callback: null,
  progress_callback_user_data: null,
  kv_overrides: null,
  vocab_only: false,
  check_tensors: false,
  use_extra_bufts: true,
  no_host: false,
  no_alloc: false,
  load_mtp: false,
};

/** `llama_context_default_params()` of v0.5.0 (src/llama-context.cpp). */
export const contextDefaults: Defaults = {
  n_ctx: 512,
  n_batch: 2048,
  n_ubatch: 512,
  n_seq_max: 1,
  n_rs_seq: 0,
  n_outputs_max: 0,
  n_outputs_max_per_seq: 1,
  n_threads: 4,
  n_threads_batch: 4,
  ctx_type: 0,
  rope_scaling_type: -1,
  pooling_type: -1,
  attention_type: -1,
  flash_attn_type: -1,
  rope_freq_base: 0,
  rope_freq_scale: 0,
  yarn_ext_factor: -1,
  yarn_attn_factor: -1,
  yarn_beta_fast: -1,
  yarn_beta_slow: -1,
  yarn_orig_ctx: 0,
  defrag_thold: -1,
  cb_eval: null,
  cb_eval_user_data: null,
  type_k: 1,
  type_v: 1,
  abort_callback: null,
  abort_callback_data: null,
  embeddings: false,
  offload_kqv: true,
  no_perf: true,
  op_offload: true,
  swa_full: true,
  kv_unified: false,
  samplers: null,
  n_samplers: 0,
  ctx_other: null,
};

/**
 * @param call the C function that the values came from, for the message
 * @throws CodedError library_mismatch naming the first field that differs, with both values
 */
export function checkDefaults(call: string, actual: Readonly<Record<string, unknown>>, expected: Defaults): void {
  for (const [field, value] of Object.entries(expected)) {
    const found = typeof actual[field] === "bigint" ? Number(actual[field]) : actual[field];
    if (found === value) continue;
    throw new CodedError(
      "library_mismatch",
      `${call}() gives ${field} = ${String(found)}, but release ${libraryRelease} has ${String(value)}: the parameters lie elsewhere in this library. Reinstall the pinned packages (npm ci).`,
    );
  }
}
