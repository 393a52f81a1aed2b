/**
 * The loaded library: one per process, checked when it is opened (ABI checks 1, 2, 3 and 5), never unloaded.
 *
 * The tokenizer needs libllama only. Whoever computes calls `kernels()` first, which loads the CPU variant for this machine and
 * the GPU kernels of the same directory, and nothing from anywhere else.
 */

import { CodedError, messageOf } from "@kvasir/kit";
import koffi, { type LibraryHandle } from "koffi";
import { checkDefaults, contextDefaults, modelDefaults } from "./abi-defaults.ts";
import { checkLayout } from "./abi-layout.ts";
import { functionAddress } from "./abort-flag.ts";
import { type Kernels, loadKernels } from "./kernels.ts";
import { verifyLibraryFiles, type Verification } from "./library-hashes.ts";
import {
  installedPackageDirectory,
  type LibraryLocation,
  type LocationOptions,
  locateLibrary,
  type Machine,
} from "./library-location.ts";
import { attachLog, LibraryLog } from "./library-log.ts";
import { bindFunctions, hasNextn, type NativeFunctions } from "./native-functions.ts";
import { type StateStream, stateStreamOf } from "./state-stream.ts";
import type { Address } from "./structs.ts";

export interface LibraryOptions extends LocationOptions {
  /** Run a library whose files are not in the table of tested ones. Its interface is checked all the same. */
  readonly allowUnverified?: boolean;
}

/**
 * koffi runs C functions on stacks of its own, 128 KiB for asynchronous calls by default: too little for code written for the
 * 8 MiB of a thread. The pages are only taken when they are touched.
 */
const stackBytes = 8 * 1024 * 1024;

export class LlamaLibrary {
  readonly native: NativeFunctions;
  readonly location: LibraryLocation;
  readonly verification: Verification;
  readonly log: LibraryLog;
  /** Whether multi-token prediction can be driven through this library. */
  readonly hasNextn: boolean;
  /** `ggml_is_empty`, for `AbortFlag`. */
  readonly isEmptyAddress: Address;
  readonly #llama: LibraryHandle;
  #kernels: Kernels | null = null;

  constructor(location: LibraryLocation, verification: Verification) {
    this.location = location;
    this.verification = verification;
    // what the next one needs comes first
    const base = load(location.ggmlBase);
    const ggml = load(location.ggml);
    this.#llama = load(location.llama);
    const libraries = [this.#llama, ggml, base];
    this.native = bindFunctions(libraries);
    this.hasNextn = hasNextn(libraries);
    this.isEmptyAddress = functionAddress(base, "ggml_is_empty");
    this.log = new LibraryLog();
    attachLog(this.native, this.log);
    checkDefaults("llama_model_default_params", this.native.llama_model_default_params(), modelDefaults);
    checkDefaults("llama_context_default_params", this.native.llama_context_default_params(), contextDefaults);
    this.native.llama_backend_init();
  }

  /** What the library says of itself. Not an identity: builds differ under one name. */
  get version(): string {
    return this.native.llama_version();
  }

  /** A stream of its own each time, to be freed; null when the library lacks the functions. */
  stateStream(): StateStream | null {
    return stateStreamOf(this.#llama);
  }

  kernels(): Kernels {
    this.#kernels ??= loadKernels(this.native, this.location, this.log);
    return this.#kernels;
  }
}

let opened: LlamaLibrary | null = null;

/**
 * Opens the library of this machine, or returns the one that is open. Takes some 50 ms the first time.
 * @throws CodedError library_missing or library_mismatch, saying which file, symbol, size or field
 */
export function openLibrary(options: LibraryOptions = {}): LlamaLibrary {
  checkLayout();
  const location = locateLibrary(options, hostMachine);
  if (opened !== null) {
    if (opened.location.directory === location.directory) return opened;
    throw new CodedError(
      "invalid_configuration",
      `this process already runs the library in ${opened.location.directory}; ${location.directory} cannot be mixed with it. Use one library per process.`,
    );
  }
  const verification = verifyLibraryFiles(location, options.allowUnverified ?? false);
  if (koffi.config().async_stack_size !== stackBytes)
    koffi.config({ sync_stack_size: stackBytes, async_stack_size: stackBytes });
  opened = new LlamaLibrary(location, verification);
  return opened;
}

export const hostMachine: Machine = {
  platform: process.platform,
  arch: process.arch,
  packageDirectory: installedPackageDirectory,
  canLoad(libraryName) {
    try {
      koffi.load(libraryName, { lazy: true }).unload();
      return true;
    } catch {
      return false; // no such library, or one that does not load: no driver to use
    }
  },
};

/** The libraries see each other's symbols, so they are loaded for all. */
function load(file: string): LibraryHandle {
  try {
    return koffi.load(file, { global: true });
  } catch (error) {
    throw new CodedError(
      "library_missing",
      `${file} cannot be loaded: ${messageOf(error)}. Reinstall the pinned packages (npm ci).`,
      {
        cause: error,
      },
    );
  }
}
