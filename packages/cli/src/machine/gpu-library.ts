/**
 * The GPU builds of libllama are too large for everybody's install (CUDA: 140 MB packed), so they are fetched when somebody asks
 * for them by `--gpu cuda` or `--gpu vulkan`, and found again by `--gpu auto`. They lie in the cache folder beside the pinned Node.
 */

import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { CodedError } from "@kvasir/kit";
import type { GpuChoice, LibraryOptions } from "@kvasir/llama";
import type { Configuration } from "../config/options.ts";

/** Platforms with GPU builds beside the one that npm installs, and what shows that a driver is there. */
const gpuPackages: Readonly<Record<string, { readonly cuda: string; readonly vulkan: string; readonly nvidiaDriver: string }>> =
  {
    "linux-x64": {
      cuda: "@node-llama-cpp/linux-x64-cuda",
      vulkan: "@node-llama-cpp/linux-x64-vulkan",
      nvidiaDriver: "/dev/nvidiactl",
    },
    "win32-x64": {
      cuda: "@node-llama-cpp/win-x64-cuda",
      vulkan: "@node-llama-cpp/win-x64-vulkan",
      nvidiaDriver: "C:\\Windows\\System32\\nvcuda.dll",
    },
  };

export interface GpuLibrary {
  readonly library: LibraryOptions;
  /** Whether the model is meant to live on a device with memory of its own. */
  readonly usesDeviceMemory: boolean;
  /** One line for a person who could have a GPU and does not use it. */
  readonly hint: string | null;
}

export interface GpuMachine {
  readonly platform: string;
  readonly arch: string;
  readonly cacheDir: string;
  exists(path: string): boolean;
}

type Wanted = Pick<Configuration, "gpu" | "gpuLayers" | "libraryDirectory" | "allowUnverifiedLibrary">;

/**
 * Decides which library the engine opens; fetches a package that was asked for by name and is missing.
 * @param fetchPackage brings a package into the cache folder
 * @throws CodedError library_missing when there is no such package or it cannot be fetched
 */
export async function chooseGpuLibrary(
  wanted: Wanted,
  machine: GpuMachine,
  fetchPackage: (name: string) => Promise<void> = bringPackage,
): Promise<GpuLibrary> {
  const allowUnverified = wanted.allowUnverifiedLibrary;
  const own = wanted.libraryDirectory;
  if (own !== null) {
    return {
      library: { gpu: wanted.gpu, libraryDirectory: resolve(own), allowUnverified },
      usesDeviceMemory: onDevice(wanted.gpu),
      hint: null,
    };
  }
  const packages = gpuPackages[`${machine.platform}-${machine.arch}`];
  if (packages === undefined || wanted.gpu === "none" || wanted.gpu === "metal") {
    return { library: { gpu: wanted.gpu, allowUnverified }, usesDeviceMemory: onDevice(wanted.gpu), hint: null };
  }
  if (wanted.gpu !== "auto") {
    const name = packages[wanted.gpu];
    if (!isThere(name, machine)) await fetchPackage(name);
    return inCache(name, wanted.gpu, machine, allowUnverified);
  }
  const hasNvidia = machine.exists(packages.nvidiaDriver);
  if (hasNvidia && isThere(packages.cuda, machine)) return inCache(packages.cuda, "cuda", machine, allowUnverified);
  const hint = hasNvidia ? "there is an NVIDIA GPU; `--gpu cuda` fetches the CUDA build once (140 MB) and uses it" : null;
  return { library: { gpu: "auto", allowUnverified }, usesDeviceMemory: false, hint };
}

function onDevice(gpu: GpuChoice): boolean {
  return gpu === "cuda" || gpu === "vulkan";
}

function inCache(name: string, gpu: GpuChoice, machine: GpuMachine, allowUnverified: boolean): GpuLibrary {
  const binaries = join(packageFolder(name, machine), "bins", name.slice(name.indexOf("/") + 1));
  return { library: { gpu, libraryDirectory: binaries, allowUnverified }, usesDeviceMemory: true, hint: null };
}

function isThere(name: string, machine: GpuMachine): boolean {
  return machine.exists(join(packageFolder(name, machine), "package.json"));
}

/** Where `scripts/npm-package.mjs` puts it. */
function packageFolder(name: string, machine: GpuMachine): string {
  return join(machine.cacheDir, "runtime", `${name.replace("/", "+")}@${libraryVersion()}`);
}

/** The version that all `@node-llama-cpp` packages are pinned to. */
function libraryVersion(): string {
  const manifest = JSON.parse(readFileSync(new URL("../../../llama/package.json", import.meta.url), "utf8")) as {
    optionalDependencies: Record<string, string>;
  };
  const [version] = Object.values(manifest.optionalDependencies);
  if (version === undefined)
    throw new CodedError("library_missing", "packages/llama/package.json pins no libllama package; restore the file.");
  return version;
}

function bringPackage(name: string): Promise<void> {
  const script = fileURLToPath(new URL("../../../../scripts/npm-package.mjs", import.meta.url));
  return new Promise((done, fail) => {
    const child = spawn(process.execPath, [script, name, libraryVersion()], { stdio: ["ignore", "ignore", "inherit"] });
    child.on("error", fail);
    child.on("exit", (code) => {
      if (code === 0) done();
      else
        fail(
          new CodedError(
            "library_missing",
            `${name} could not be fetched; the reason is above. Use --gpu none to go on without a GPU.`,
          ),
        );
    });
  });
}

export function hostGpuMachine(cacheDir: string): GpuMachine {
  return { platform: process.platform, arch: process.arch, cacheDir, exists: existsSync };
}
