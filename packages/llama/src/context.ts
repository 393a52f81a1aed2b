/** One llama_context: the KV cells of all lanes, the compute buffers, and the threads that work on them. */

import { CodedError, invariant } from "@kvasir/kit";
import type { LlamaModel } from "./model.ts";
import { callAsync } from "./native-functions.ts";
import { type Address, constants } from "./structs.ts";
import { Threadpool } from "./threadpool.ts";

/** Types of cached keys and values, and their ids in ggml. */
const kvTypeIds = {
  f32: constants.GGML_TYPE_F32,
  f16: constants.GGML_TYPE_F16,
  bf16: constants.GGML_TYPE_BF16,
  q8_0: constants.GGML_TYPE_Q8_0,
  q5_1: constants.GGML_TYPE_Q5_1,
  q5_0: constants.GGML_TYPE_Q5_0,
  q4_1: constants.GGML_TYPE_Q4_1,
  q4_0: constants.GGML_TYPE_Q4_0,
} as const;
export type KvType = keyof typeof kvTypeIds;

export interface ContextOptions {
  readonly laneCount: number;
  /** Room of a lane. libllama rounds it up to a multiple of 256. */
  readonly laneTokens: number;
  readonly batchTokens: number;
  /** Rows computed at once; the compute buffers grow with it. */
  readonly microBatchTokens: number;
  readonly outputRows: number;
  readonly threads: number;
  /** Polling level of the threads between two graphs, 0 to 100. */
  readonly threadPoll: number;
  readonly keyType: KvType;
  readonly valueType: KvType;
  /** Whether a GPU takes part: KV cells and large batches go there. */
  readonly offload: boolean;
}

export class LlamaContext {
  readonly model: LlamaModel;
  readonly handle: Address;
  readonly memory: Address;
  readonly #threadpool: Threadpool;

  constructor(model: LlamaModel, handle: Address, memory: Address, threadpool: Threadpool) {
    this.model = model;
    this.handle = handle;
    this.memory = memory;
    this.#threadpool = threadpool;
    model.library.native.llama_attach_threadpool(handle, threadpool.address, threadpool.address);
  }

  /** No call may be running. */
  close(): void {
    const { native } = this.model.library;
    native.llama_detach_threadpool(this.handle);
    native.llama_free(this.handle);
    this.#threadpool.free();
  }
}

/**
 * Allocates on another thread. Lanes are separate streams, so attention costs what its own sequence costs; windowed layers keep
 * all their cells, so that a lane can be cut back to any length.
 * @throws CodedError kv_memory_insufficient or engine_start_failed with libllama's reason
 */
export async function createContext(model: LlamaModel, options: ContextOptions): Promise<LlamaContext> {
  const { native, log } = model.library;
  const mark = log.mark();
  const handle = await callAsync(native.llama_init_from_model, model.handle, {
    ...native.llama_context_default_params(),
    n_ctx: options.laneCount * options.laneTokens,
    n_batch: options.batchTokens,
    n_ubatch: options.microBatchTokens,
    n_seq_max: options.laneCount,
    // libllama sets aside a row a lane and ends the process when that is more than it was told
    n_outputs_max: Math.max(options.outputRows, options.laneCount),
    n_threads: options.threads,
    n_threads_batch: options.threads,
    flash_attn_type: constants.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    type_k: kvTypeIds[options.keyType],
    type_v: kvTypeIds[options.valueType],
    offload_kqv: options.offload,
    op_offload: options.offload,
    no_perf: true,
    swa_full: true,
    kv_unified: false,
  });
  if (handle === null) throw contextFailure(options, log.reasonSince(mark));
  try {
    const memory = native.llama_get_memory(handle);
    invariant(memory !== null, "the context of a generating model has no memory");
    return new LlamaContext(model, handle, memory, new Threadpool(model.library, options.threads, options.threadPoll));
  } catch (error) {
    native.llama_free(handle);
    throw error;
  }
}

function contextFailure(options: ContextOptions, reason: string): CodedError {
  const what = `${options.laneCount} lanes of ${options.laneTokens} tokens with ${options.keyType}/${options.valueType} cells`;
  return /allocate|out of memory/i.test(reason)
    ? new CodedError("kv_memory_insufficient", `${what} cannot be allocated: ${reason}. Use fewer or shorter lanes.`)
    : new CodedError(
        "engine_start_failed",
        `${what} cannot be set up: ${reason === "" ? "libllama gives no reason" : reason}.`,
      );
}
