/** The compute backends of the library's directory: the CPU variant that suits this machine, and a GPU where there is one. */

import { readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { CodedError } from "@kvasir/kit";
import koffi, { type TypeObject } from "koffi";
import type { GpuKind, LibraryLocation } from "./library-location.ts";
import type { LibraryLog } from "./library-log.ts";
import type { NativeFunction, NativeFunctions } from "./native-functions.ts";
import { type Address, constants } from "./structs.ts";

export interface Device {
  readonly address: Address;
  /** For example `CUDA0`. */
  readonly name: string;
  readonly description: string;
}

export interface Kernels {
  /** The CPU variant that the library chose, for example `haswell`. */
  readonly cpuVariant: string;
  /** GPUs, integrated ones too. Empty: everything runs on the CPU. */
  readonly gpus: readonly Device[];
  /** Why a GPU package computes on the CPU after all, or null. */
  readonly gpuProblem: string | null;
  readonly newThreadpool: NativeFunction<[params: Address], Address | null>;
  readonly freeThreadpool: NativeFunction<[pool: Address], void>;
}

/**
 * @throws CodedError library_mismatch when there are no CPU kernels or they lack the thread pool
 */
export function loadKernels(native: NativeFunctions, location: LibraryLocation, log: LibraryLog): Kernels {
  const mark = log.mark();
  native.ggml_backend_load_all_from_path(location.directory);
  let gpuProblem: string | null = null;
  if (location.gpu !== "none" && gpusOf(native).length === 0) {
    gpuProblem = loadGpuKernels(native, location, location.gpu, log);
  }
  const cpu = native.ggml_backend_dev_by_type(constants.GGML_BACKEND_DEVICE_TYPE_CPU);
  if (cpu === null) {
    throw new CodedError(
      "library_mismatch",
      `no CPU kernels in ${location.directory} run on this machine. Reinstall the pinned packages (npm ci). ${log.reasonSince(mark)}`,
    );
  }
  const address = koffi.pointer(koffi.types.void);
  const cpuFunction = <Arguments extends unknown[], Result>(name: string, result: TypeObject) => {
    const pointer = native.ggml_backend_reg_get_proc_address(native.ggml_backend_dev_backend_reg(cpu), name);
    if (pointer === null) {
      throw new CodedError(
        "library_mismatch",
        `the CPU kernels lack the function ${name}. Reinstall the pinned packages (npm ci).`,
      );
    }
    return koffi.decode(pointer, koffi.proto(result, [address])) as NativeFunction<Arguments, Result>;
  };
  return {
    cpuVariant: cpuVariantOf(log, mark),
    gpus: gpusOf(native),
    gpuProblem,
    newThreadpool: cpuFunction("ggml_threadpool_new", address),
    freeThreadpool: cpuFunction("ggml_threadpool_free", koffi.types.void),
  };
}

/** Loads the GPU kernels by name, since the search above hides why it failed. Returns the reason when no device came of it. */
function loadGpuKernels(native: NativeFunctions, location: LibraryLocation, gpu: GpuKind, log: LibraryLog): string | null {
  const mark = log.mark();
  for (const directory of [location.directory, location.fallbackDirectory]) {
    if (directory === null) continue;
    const name = readdirSync(directory).find((file) => file.includes(`ggml-${gpu}.`));
    if (name === undefined) continue;
    native.ggml_backend_load(join(directory, name));
    if (gpusOf(native).length > 0) return null;
  }
  return log.reasonSince(mark) || `the ${gpu} kernels found no device`;
}

function gpusOf(native: NativeFunctions): readonly Device[] {
  const devices: Device[] = [];
  for (let index = 0; index < Number(native.ggml_backend_dev_count()); index++) {
    const address = native.ggml_backend_dev_get(index);
    const type = native.ggml_backend_dev_type(address);
    if (type !== constants.GGML_BACKEND_DEVICE_TYPE_GPU && type !== constants.GGML_BACKEND_DEVICE_TYPE_IGPU) continue;
    devices.push({
      address,
      name: native.ggml_backend_dev_name(address),
      description: native.ggml_backend_dev_description(address),
    });
  }
  return devices;
}

/** `load_backend: loaded CPU backend from …/libggml-cpu-haswell.so` */
function cpuVariantOf(log: LibraryLog, mark: number): string {
  for (const { text } of log.linesSince(mark)) {
    const file = /loaded CPU backend from (.+)$/.exec(text)?.[1];
    if (file !== undefined) return /ggml-cpu-?([\w-]*)\./.exec(basename(file))?.[1] || "generic";
  }
  return "unknown";
}
