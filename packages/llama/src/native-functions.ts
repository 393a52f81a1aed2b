/**
 * The C functions that are called, with their types for C and for TypeScript. Binding finds every one of them by name, so a
 * library that lacks one is refused at start and not in the middle of a request.
 */

import { CodedError } from "@kvasir/kit";
import koffi, { type TypeObject } from "koffi";
import {
  type Address,
  type BatchStruct,
  batchType,
  type ContextParams,
  contextParamsType,
  type ModelParams,
  modelParamsType,
} from "./structs.ts";

/** `async` runs the call on a thread of libuv's pool; arguments by reference must outlive it. */
export interface NativeFunction<Arguments extends unknown[], Result> {
  (...args: Arguments): Result;
  async(...args: [...Arguments, (error: Error | null, result: Result) => void]): void;
}

/** Awaits the call on another thread. */
export function callAsync<Arguments extends unknown[], Result>(
  native: NativeFunction<Arguments, Result>,
  ...args: Arguments
): Promise<Result> {
  return new Promise((resolve, reject) => {
    native.async(...args, (error, result) => (error ? reject(error) : resolve(result)));
  });
}

/** koffi gives 64-bit integers as a number or a bigint: wrap them with `Number()`. */
type Size = number | bigint;
/** Memory that C reads or writes during the call: an address, or a typed array for a synchronous call. */
type Memory = Address | ArrayBufferView;

/** libllama and what it links: found in the library named by the prefix. */
export interface NativeFunctions {
  ggml_log_set: NativeFunction<[callback: Address | null, userData: null], void>;
  ggml_is_empty: NativeFunction<[tensor: Address], boolean>;
  ggml_threadpool_params_init: NativeFunction<[params: Address, threads: number], void>;
  ggml_backend_load: NativeFunction<[path: string], Address | null>;
  ggml_backend_load_all_from_path: NativeFunction<[directory: string], void>;
  ggml_backend_dev_count: NativeFunction<[], Size>;
  ggml_backend_dev_get: NativeFunction<[index: number], Address>;
  ggml_backend_dev_by_type: NativeFunction<[type: number], Address | null>;
  ggml_backend_dev_name: NativeFunction<[device: Address], string>;
  ggml_backend_dev_description: NativeFunction<[device: Address], string>;
  ggml_backend_dev_type: NativeFunction<[device: Address], number>;
  ggml_backend_dev_memory: NativeFunction<[device: Address, free: Memory, total: Memory], void>;
  ggml_backend_dev_backend_reg: NativeFunction<[device: Address], Address>;
  ggml_backend_tensor_get: NativeFunction<[tensor: Address, target: Address, offset: number, size: number], void>;
  ggml_backend_tensor_set: NativeFunction<[tensor: Address, source: Address, offset: number, size: number], void>;
  ggml_backend_reg_get_proc_address: NativeFunction<[registry: Address, name: string], Address | null>;
  llama_backend_init: NativeFunction<[], void>;
  llama_log_set: NativeFunction<[callback: Address | null, userData: null], void>;
  llama_version: NativeFunction<[], string>;
  llama_max_parallel_sequences: NativeFunction<[], Size>;
  llama_model_default_params: NativeFunction<[], ModelParams>;
  llama_context_default_params: NativeFunction<[], ContextParams>;
  llama_model_load_from_file: NativeFunction<[path: string, params: ModelParams], Address | null>;
  llama_model_free: NativeFunction<[model: Address], void>;
  llama_model_get_vocab: NativeFunction<[model: Address], Address>;
  llama_model_desc: NativeFunction<[model: Address, text: Memory, size: number], number>;
  llama_model_size: NativeFunction<[model: Address], Size>;
  llama_model_n_swa: NativeFunction<[model: Address], number>;
  llama_model_n_layer_nextn: NativeFunction<[model: Address], number>;
  llama_model_has_encoder: NativeFunction<[model: Address], boolean>;
  llama_model_has_decoder: NativeFunction<[model: Address], boolean>;
  llama_model_is_recurrent: NativeFunction<[model: Address], boolean>;
  llama_model_is_hybrid: NativeFunction<[model: Address], boolean>;
  llama_model_is_diffusion: NativeFunction<[model: Address], boolean>;
  llama_init_from_model: NativeFunction<[model: Address, params: ContextParams], Address | null>;
  llama_free: NativeFunction<[context: Address], void>;
  llama_n_ctx: NativeFunction<[context: Address], number>;
  llama_n_ctx_seq: NativeFunction<[context: Address], number>;
  llama_n_batch: NativeFunction<[context: Address], number>;
  llama_n_ubatch: NativeFunction<[context: Address], number>;
  llama_n_seq_max: NativeFunction<[context: Address], number>;
  llama_n_threads: NativeFunction<[context: Address], number>;
  llama_attach_threadpool: NativeFunction<[context: Address, pool: Address, batchPool: Address], void>;
  llama_detach_threadpool: NativeFunction<[context: Address], void>;
  llama_set_abort_callback: NativeFunction<[context: Address, callback: Address | null, data: Address | null], void>;
  llama_synchronize: NativeFunction<[context: Address], void>;
  llama_decode: NativeFunction<[context: Address, batch: BatchStruct], number>;
  llama_get_logits_ith: NativeFunction<[context: Address, row: number], Address | null>;
  llama_get_memory: NativeFunction<[context: Address], Address | null>;
  llama_memory_seq_rm: NativeFunction<[memory: Address, sequence: number, from: number, to: number], boolean>;
  llama_memory_seq_pos_min: NativeFunction<[memory: Address, sequence: number], number>;
  llama_memory_seq_pos_max: NativeFunction<[memory: Address, sequence: number], number>;
  llama_state_seq_get_size_ext: NativeFunction<[context: Address, sequence: number, flags: number], Size>;
  llama_state_seq_get_data_ext: NativeFunction<
    [context: Address, target: Memory, size: number, sequence: number, flags: number],
    Size
  >;
  llama_state_seq_set_data_ext: NativeFunction<
    [context: Address, source: Memory, size: number, sequence: number, flags: number],
    Size
  >;
  llama_sampler_init_greedy: NativeFunction<[], Address>;
  llama_sampler_sample: NativeFunction<[sampler: Address, context: Address, row: number], number>;
  llama_sampler_free: NativeFunction<[sampler: Address], void>;
  llama_vocab_type: NativeFunction<[vocab: Address], number>;
  llama_vocab_n_tokens: NativeFunction<[vocab: Address], number>;
  llama_vocab_get_attr: NativeFunction<[vocab: Address, token: number], number>;
  llama_vocab_is_eog: NativeFunction<[vocab: Address, token: number], boolean>;
  llama_vocab_bos: NativeFunction<[vocab: Address], number>;
  llama_vocab_eos: NativeFunction<[vocab: Address], number>;
  llama_vocab_get_add_bos: NativeFunction<[vocab: Address], boolean>;
  llama_tokenize: NativeFunction<
    [
      vocab: Address,
      text: Memory,
      textBytes: number,
      tokens: Memory,
      tokenRoom: number,
      addSpecial: boolean,
      parseSpecial: boolean,
    ],
    number
  >;
  llama_token_to_piece: NativeFunction<
    [vocab: Address, token: number, target: Memory, size: number, leftStrip: number, special: boolean],
    number
  >;
}

export type NativeName = keyof NativeFunctions;
export type Prototype = readonly [result: TypeObject, args: readonly TypeObject[]];

const { void: nothing, bool, int32, uint32, size_t, str } = koffi.types;
const address = koffi.pointer(koffi.types.void);

export const prototypes: Readonly<Record<NativeName, Prototype>> = {
  ggml_log_set: [nothing, [address, address]],
  ggml_is_empty: [bool, [address]],
  ggml_threadpool_params_init: [nothing, [address, int32]],
  ggml_backend_load: [address, [str]],
  ggml_backend_load_all_from_path: [nothing, [str]],
  ggml_backend_dev_count: [size_t, []],
  ggml_backend_dev_get: [address, [size_t]],
  ggml_backend_dev_by_type: [address, [int32]],
  ggml_backend_dev_name: [str, [address]],
  ggml_backend_dev_description: [str, [address]],
  ggml_backend_dev_type: [int32, [address]],
  ggml_backend_dev_memory: [nothing, [address, address, address]],
  ggml_backend_dev_backend_reg: [address, [address]],
  ggml_backend_tensor_get: [nothing, [address, address, size_t, size_t]],
  ggml_backend_tensor_set: [nothing, [address, address, size_t, size_t]],
  ggml_backend_reg_get_proc_address: [address, [address, str]],
  llama_backend_init: [nothing, []],
  llama_log_set: [nothing, [address, address]],
  llama_version: [str, []],
  llama_max_parallel_sequences: [size_t, []],
  llama_model_default_params: [modelParamsType, []],
  llama_context_default_params: [contextParamsType, []],
  llama_model_load_from_file: [address, [str, modelParamsType]],
  llama_model_free: [nothing, [address]],
  llama_model_get_vocab: [address, [address]],
  llama_model_desc: [int32, [address, address, size_t]],
  llama_model_size: [koffi.types.uint64, [address]],
  llama_model_n_swa: [int32, [address]],
  llama_model_n_layer_nextn: [int32, [address]],
  llama_model_has_encoder: [bool, [address]],
  llama_model_has_decoder: [bool, [address]],
  llama_model_is_recurrent: [bool, [address]],
  llama_model_is_hybrid: [bool, [address]],
  llama_model_is_diffusion: [bool, [address]],
  llama_init_from_model: [address, [address, contextParamsType]],
  llama_free: [nothing, [address]],
  llama_n_ctx: [uint32, [address]],
  llama_n_ctx_seq: [uint32, [address]],
  llama_n_batch: [uint32, [address]],
  llama_n_ubatch: [uint32, [address]],
  llama_n_seq_max: [uint32, [address]],
  llama_n_threads: [int32, [address]],
  llama_attach_threadpool: [nothing, [address, address, address]],
  llama_detach_threadpool: [nothing, [address]],
  llama_set_abort_callback: [nothing, [address, address, address]],
  llama_synchronize: [nothing, [address]],
  llama_decode: [int32, [address, batchType]],
  llama_get_logits_ith: [address, [address, int32]],
  llama_get_memory: [address, [address]],
  llama_memory_seq_rm: [bool, [address, int32, int32, int32]],
  llama_memory_seq_pos_min: [int32, [address, int32]],
  llama_memory_seq_pos_max: [int32, [address, int32]],
  llama_state_seq_get_size_ext: [size_t, [address, int32, uint32]],
  llama_state_seq_get_data_ext: [size_t, [address, address, size_t, int32, uint32]],
  llama_state_seq_set_data_ext: [size_t, [address, address, size_t, int32, uint32]],
  llama_sampler_init_greedy: [address, []],
  llama_sampler_sample: [int32, [address, address, int32]],
  llama_sampler_free: [nothing, [address]],
  llama_vocab_type: [int32, [address]],
  llama_vocab_n_tokens: [int32, [address]],
  llama_vocab_get_attr: [int32, [address, int32]],
  llama_vocab_is_eog: [bool, [address, int32]],
  llama_vocab_bos: [int32, [address]],
  llama_vocab_eos: [int32, [address]],
  llama_vocab_get_add_bos: [bool, [address]],
  llama_tokenize: [int32, [address, address, int32, address, int32, bool, bool]],
  llama_token_to_piece: [int32, [address, int32, address, int32, int32, bool]],
};

/**
 * C++ functions of a staging interface, needed for multi-token prediction (MTP) only. The names are mangled as GCC and Clang
 * do it, so a library built by MSVC lacks them: MTP is off there, everything else works.
 */
export const nextnSymbols = [
  "_Z26llama_set_embeddings_nextnP13llama_contextbb",
  "_Z26llama_get_embeddings_nextnP13llama_context",
  "_Z30llama_get_embeddings_nextn_ithP13llama_contexti",
] as const;

/** A loaded shared library, as koffi gives it. */
export interface SymbolSource {
  func(name: string, result: TypeObject, args: TypeObject[]): unknown;
  symbol(name: string): unknown;
}

/**
 * Finds every function of the table in the first of the libraries that has it.
 * @throws CodedError library_mismatch with the names of all that are missing
 */
export function bindFunctions(
  libraries: readonly SymbolSource[],
  table: Readonly<Record<string, Prototype>> = prototypes,
): NativeFunctions {
  const bound: Record<string, unknown> = {};
  const missing: string[] = [];
  for (const [name, [result, args]] of Object.entries(table)) {
    const native = bindOne(libraries, name, result, args);
    if (native === undefined) missing.push(name);
    else bound[name] = native;
  }
  if (missing.length > 0) {
    const what = missing.length === 1 ? `the function ${missing[0]}` : `the functions ${missing.join(", ")}`;
    throw new CodedError(
      "library_mismatch",
      `libllama lacks ${what}: it is not the release this program was built for. Reinstall the pinned packages (npm ci).`,
    );
  }
  return bound as { [Name in NativeName]: NativeFunctions[Name] };
}

/** Whether all C++ functions for MTP are there. */
export function hasNextn(libraries: readonly SymbolSource[]): boolean {
  return nextnSymbols.every((name) => libraries.some((library) => hasSymbol(library, name)));
}

function bindOne(libraries: readonly SymbolSource[], name: string, result: TypeObject, args: readonly TypeObject[]): unknown {
  for (const library of libraries) {
    if (hasSymbol(library, name)) return library.func(name, result, [...args]);
  }
  return undefined;
}

function hasSymbol(library: SymbolSource, name: string): boolean {
  try {
    library.symbol(name);
    return true;
  } catch {
    return false; // koffi's error for a symbol that is not there
  }
}
