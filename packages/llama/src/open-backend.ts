/** Opens the real backend: library, model, checks on the model, memory check, context. Closes what it opened when a step fails. */

import { type Clock, CodedError, invariant, systemClock } from "@kvasir/kit";
import { LlamaBackend } from "./backend.ts";
import { type ContextOptions, createContext, type KvType, type LlamaContext } from "./context.ts";
import type { Kernels } from "./kernels.ts";
import { checkKvFits, kvBytesOf } from "./kv-memory.ts";
import { type LibraryOptions, type LlamaLibrary, openLibrary } from "./library.ts";
import type { LogLine } from "./library-log.ts";
import { type LlamaModel, loadModel } from "./model.ts";
import { type RoundTrip, roundTrip } from "./round-trip.ts";
import { Vocabulary } from "./vocabulary.ts";

export interface LlamaBackendOptions {
  readonly library?: LibraryOptions;
  /** A .gguf file; of a split model its first shard. */
  readonly modelPath: string;
  readonly laneCount: number;
  /** Room of a lane in tokens. */
  readonly laneTokens: number;
  /** Most rows of one decode. */
  readonly batchTokens?: number;
  /** Most rows of one decode that ask for logits. Default: one a lane. */
  readonly outputRows?: number;
  readonly threads: number;
  /** Default f16. Other types save memory and cost prefill speed on a CPU: see docs/performance.md. */
  readonly keyType?: KvType;
  readonly valueType?: KvType;
  /** Layers on the GPU: -1 (default) all, 0 none. */
  readonly gpuLayers?: number;
  /** Reading of the weights, 0 to 1. */
  readonly onProgress?: (fraction: number) => void;
  /** libllama's log while it starts and afterwards. */
  readonly onLog?: (line: LogLine) => void;
  /** Host memory that may be used, weights included. Default: what the system says is available. */
  readonly availableBytes?: number;
  /** Most rows of a decode that blocks the event loop. Default: as many as take up to 20 ms, at most 16. */
  readonly synchronousRows?: number;
  /** Polling level of the compute threads between two graphs, 0 (default) to 100. */
  readonly threadPoll?: number;
  readonly clock?: Clock;
}

const defaultBatchTokens = 512;
const longestBlockMs = 20;
const mostSynchronousRows = 16;

/**
 * @throws CodedError library_missing, library_mismatch, one of the model_file errors, kv_memory_insufficient,
 *   engine_start_failed or invalid_configuration
 */
export async function openLlamaBackend(options: LlamaBackendOptions): Promise<LlamaBackend> {
  checkOptions(options);
  const library = openLibrary(options.library);
  const stopListening = options.onLog === undefined ? () => undefined : library.log.listen(options.onLog);
  const closers: Array<() => unknown> = [stopListening];
  try {
    const kernels = kernelsFor(library, options);
    const availableBytes = options.availableBytes ?? process.availableMemory();
    const offload = kernels.gpus.length > 0 && options.library?.gpu !== "none" && options.gpuLayers !== 0;
    const model = await loadModel(library, {
      modelPath: options.modelPath,
      vocabOnly: false,
      gpuLayers: offload ? (options.gpuLayers ?? -1) : 0,
      ...(options.onProgress === undefined ? {} : { onProgress: options.onProgress }),
    });
    closers.push(() => model.close());
    const vocabulary = new Vocabulary(model);
    const contextOptions = contextOptionsOf(options, offload);
    const sizes = await roundTrip(model, contextOptions, vocabulary.size, options.clock ?? systemClock);
    checkKvFits(options.laneCount, options.laneTokens, sizes, bytesForLanes(model, kernels, offload, availableBytes));
    const context = await createContext(model, contextOptions);
    closers.push(() => context.close());
    const facts = factsOf(options, context, vocabulary, sizes, kernels, offload);
    const synchronousRows = options.synchronousRows ?? Math.min(mostSynchronousRows, Math.floor(longestBlockMs / sizes.rowMs));
    return new LlamaBackend({ context, vocabulary, facts, synchronousRows, waitsForDevice: offload, stopListening });
  } catch (error) {
    for (const close of closers.reverse()) close();
    throw error;
  }
}

function contextOptionsOf(options: LlamaBackendOptions, offload: boolean): ContextOptions {
  const batchTokens = options.batchTokens ?? defaultBatchTokens;
  return {
    laneCount: options.laneCount,
    laneTokens: options.laneTokens,
    batchTokens,
    microBatchTokens: batchTokens,
    outputRows: options.outputRows ?? options.laneCount,
    threads: options.threads,
    threadPoll: options.threadPoll ?? 0,
    keyType: options.keyType ?? "f16",
    valueType: options.valueType ?? "f16",
    offload,
  };
}

function factsOf(
  options: LlamaBackendOptions,
  context: LlamaContext,
  vocabulary: Vocabulary,
  sizes: RoundTrip,
  kernels: Kernels,
  offload: boolean,
): LlamaBackend["facts"] {
  const { model, handle } = context;
  const { native } = model.library;
  invariant(
    native.llama_n_seq_max(handle) === options.laneCount,
    `asked for ${options.laneCount} lanes, got ${native.llama_n_seq_max(handle)}`,
  );
  const device = offload ? kernels.gpus.map((gpu) => `${gpu.name} ${gpu.description}`).join(", ") : `CPU ${kernels.cpuVariant}`;
  return {
    description: `${model.description}, ${device}`,
    vocabSize: vocabulary.size,
    laneCount: options.laneCount,
    laneTokens: options.laneTokens,
    batchTokens: native.llama_n_batch(handle),
    outputRows: options.outputRows ?? options.laneCount,
    kvBytesPerToken: sizes.kvBytesPerToken,
    kvBytes: kvBytesOf(options.laneCount, options.laneTokens, sizes),
    pageRefusal: null,
    canRollBack: !model.isRecurrent,
    threads: options.threads,
    endTokens: vocabulary.endTokens(),
  };
}

/** What is left after the weights: of the host, or of the GPUs when the whole model is there. */
function bytesForLanes(model: LlamaModel, kernels: Kernels, offload: boolean, availableBytes: number): number {
  if (!offload) return availableBytes - model.weightBytes;
  const { native } = model.library;
  return kernels.gpus.reduce((sum, gpu) => {
    const [free, total] = [new BigUint64Array(1), new BigUint64Array(1)];
    native.ggml_backend_dev_memory(gpu.address, free, total);
    return sum + Number(free[0]);
  }, 0);
}

function kernelsFor(library: LlamaLibrary, options: LlamaBackendOptions): Kernels {
  const kernels = library.kernels();
  const choice = options.library?.gpu ?? "auto";
  if (choice !== "auto" && choice !== "none" && kernels.gpus.length === 0) {
    throw new CodedError(
      "library_missing",
      `gpu "${choice}" was asked for, but there is no such device: ${kernels.gpuProblem ?? "none was found"}. Install its driver and runtime, or use gpu "none".`,
      { param: "gpu" },
    );
  }
  return kernels;
}

function checkOptions(options: LlamaBackendOptions): void {
  const outputRows = options.outputRows ?? options.laneCount;
  const numbers: ReadonlyArray<readonly [name: string, value: number, least: number, most: number]> = [
    // libllama's LLAMA_MAX_SEQ; more would end the process
    ["laneCount", options.laneCount, 1, 256],
    ["laneTokens", options.laneTokens, 1, 2 ** 31 / options.laneCount - 256],
    ["batchTokens", options.batchTokens ?? defaultBatchTokens, 1, 65_536],
    ["outputRows", outputRows, 1, 65_536],
    // GGML_MAX_N_THREADS
    ["threads", options.threads, 1, 512],
    ["threadPoll", options.threadPoll ?? 0, 0, 100],
  ];
  for (const [name, value, least, most] of numbers) {
    if (Number.isInteger(value) && value >= least && value <= most) continue;
    throw new CodedError(
      "invalid_configuration",
      `${name} is ${value}; a whole number from ${least} to ${Math.floor(most)} is needed.`,
      { param: name },
    );
  }
}
