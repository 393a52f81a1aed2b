/** A loaded GGUF file: with weights for computing, or its vocabulary alone. */

import { access, constants as fileConstants } from "node:fs/promises";
import { CodedError, type ErrorCode, invariant } from "@kvasir/kit";
import koffi from "koffi";
import type { LlamaLibrary } from "./library.ts";
import { callAsync } from "./native-functions.ts";
import { type Address, constants } from "./structs.ts";

export interface ModelOptions {
  /** A .gguf file; of a split model its first shard. */
  readonly modelPath: string;
  readonly vocabOnly: boolean;
  /** Layers on the GPU: -1 all, 0 none. */
  readonly gpuLayers: number;
  /** 0 to 1, while the weights are read. */
  readonly onProgress?: (fraction: number) => void;
}

export class LlamaModel {
  readonly library: LlamaLibrary;
  readonly vocab: Address;
  #handle: Address | null;

  constructor(library: LlamaLibrary, handle: Address) {
    this.library = library;
    this.#handle = handle;
    this.vocab = library.native.llama_model_get_vocab(handle);
  }

  get handle(): Address {
    invariant(this.#handle !== null, "model used after it was closed");
    return this.#handle;
  }

  /** For example `llama 135M Q4_1`. */
  get description(): string {
    const text = Buffer.alloc(256);
    const length = this.library.native.llama_model_desc(this.handle, text, text.byteLength);
    return text.toString("utf8", 0, Math.min(length, text.byteLength - 1));
  }

  /** Bytes of all tensors. */
  get weightBytes(): number {
    return Number(this.library.native.llama_model_size(this.handle));
  }

  /** Whether a sequence's state cannot go back to an earlier position: recurrent layers, alone or beside attention. */
  get isRecurrent(): boolean {
    const { native } = this.library;
    return native.llama_model_is_recurrent(this.handle) || native.llama_model_is_hybrid(this.handle);
  }

  /** Tokens that the layers with a sliding window see; 0 when there are none. */
  get windowTokens(): number {
    return this.library.native.llama_model_n_swa(this.handle);
  }

  /** Only after every context of the model is freed. */
  close(): void {
    if (this.#handle !== null) this.library.native.llama_model_free(this.#handle);
    this.#handle = null;
  }
}

const progressType = koffi.pointer(koffi.proto(koffi.types.bool, [koffi.types.float, koffi.pointer(koffi.types.void)]));

/**
 * Reads the file on another thread.
 * @throws CodedError model_file_missing, model_file_invalid, model_file_truncated, model_architecture_unknown or
 *   model_too_large, with libllama's own reason
 */
export async function loadModel(library: LlamaLibrary, options: ModelOptions): Promise<LlamaModel> {
  const { native, log } = library;
  await checkReadable(options.modelPath);
  if (!options.vocabOnly) library.kernels();
  const mark = log.mark();
  const progress = koffi.register(progressReporter(options.onProgress), progressType);
  let handle: Address | null;
  try {
    handle = await callAsync(native.llama_model_load_from_file, options.modelPath, {
      ...native.llama_model_default_params(),
      n_gpu_layers: options.gpuLayers,
      vocab_only: options.vocabOnly,
      progress_callback: progress,
    });
  } finally {
    koffi.unregister(progress);
  }
  if (handle === null) throw loadFailure(options.modelPath, log.reasonSince(mark));
  const model = new LlamaModel(library, handle);
  try {
    checkUsable(model, options);
  } catch (error) {
    model.close();
    throw error;
  }
  return model;
}

/** Called some hundred times; passes on each new percent. Always tells libllama to go on. */
function progressReporter(onProgress: ((fraction: number) => void) | undefined): (fraction: number) => boolean {
  let lastPercent = -1;
  return (fraction) => {
    const percent = Math.floor(fraction * 100);
    if (percent > lastPercent) {
      lastPercent = percent;
      onProgress?.(Math.min(1, fraction));
    }
    return true;
  };
}

async function checkReadable(path: string): Promise<void> {
  try {
    await access(path, fileConstants.R_OK);
  } catch (error) {
    throw new CodedError("model_file_missing", `the model file ${path} does not exist or cannot be read. Check the path.`, {
      cause: error,
    });
  }
}

function checkUsable(model: LlamaModel, options: ModelOptions): void {
  const { native } = model.library;
  if (native.llama_vocab_type(model.vocab) === constants.LLAMA_VOCAB_TYPE_NONE) {
    throw new CodedError(
      "model_file_invalid",
      `${options.modelPath} has no tokenizer. Use a GGUF file of a text generation model.`,
    );
  }
  if (options.vocabOnly) return;
  const generates =
    native.llama_model_has_decoder(model.handle) &&
    !native.llama_model_has_encoder(model.handle) &&
    !native.llama_model_is_diffusion(model.handle);
  if (!generates) {
    throw new CodedError(
      "model_file_invalid",
      `${options.modelPath} (${model.description}) does not generate token by token. Use a decoder-only text generation model.`,
    );
  }
}

/** By the words of libllama's error lines (src/llama-model-loader.cpp, ggml/src/gguf.cpp, ggml-backend). */
const failures: ReadonlyArray<readonly [words: RegExp, code: ErrorCode, wayOut: string]> = [
  [
    /failed to open GGUF file|failed to load GGUF split/,
    "model_file_missing",
    "Put all parts of a split model into one directory.",
  ],
  [/unknown model architecture/, "model_architecture_unknown", "This release of libllama does not know it; use another model."],
  [
    /corrupted or incomplete|not within the file bounds|unexpectedly reached end of file|read error/,
    "model_file_truncated",
    "Download it again.",
  ],
  [
    /unable to allocate|failed to allocate|out of memory/,
    "model_too_large",
    "Use a smaller model or quantization, or put fewer layers on the GPU.",
  ],
];

function loadFailure(path: string, reason: string): CodedError {
  const [, code, wayOut] = failures.find(([words]) => words.test(reason)) ?? [
    null,
    "model_file_invalid" as const,
    "Use a GGUF file that this release of libllama reads.",
  ];
  return new CodedError(code, `${path} cannot be loaded: ${reason === "" ? "libllama gives no reason" : reason}. ${wayOut}`);
}
