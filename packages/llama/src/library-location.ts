/**
 * Which prebuilt package runs on this machine, and where its files lie. Nothing is loaded here.
 *
 * The packages carry everything in one directory. Only libllama and libggml have the version in their names, so files of two
 * directories must never be mixed.
 */

import { readdirSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { CodedError, messageOf } from "@kvasir/kit";
import hashes from "../abi/library-hashes.json" with { type: "json" };

/** What a package computes on beside the CPU. */
export type GpuKind = "none" | "cuda" | "vulkan" | "metal";
export type GpuChoice = "auto" | GpuKind;

export interface LibraryLocation {
  /** null for a directory that the user named. */
  readonly packageName: string | null;
  readonly directory: string;
  readonly ggmlBase: string;
  readonly ggml: string;
  readonly llama: string;
  readonly gpu: GpuKind;
  /** More GPU kernels, for older devices: tried when those in `directory` find none. */
  readonly fallbackDirectory: string | null;
}

export interface LocationOptions {
  /** Default "auto": a GPU package where one is installed and its driver is there, else the CPU. */
  readonly gpu?: GpuChoice;
  /** A directory with libllama, libggml and libggml-base in place of an installed package. */
  readonly libraryDirectory?: string;
}

/** What the choice depends on: the real machine in `hostMachine`, anything in tests. */
export interface Machine {
  readonly platform: string;
  readonly arch: string;
  /** Directory of an installed package's library files, or null. */
  packageDirectory(packageName: string): string | null;
  /** Whether the dynamic loader finds the library: tells if a GPU driver is installed. */
  canLoad(libraryName: string): boolean;
}

interface Candidate {
  readonly packageName: string;
  readonly gpu: GpuKind;
  /** One library of the driver, by platform loader name. Empty: nothing needed. */
  readonly driver: string;
}

/** The release that the packages carry; the version stands in the file names. */
export const libraryRelease = hashes.release;

export function locateLibrary(options: LocationOptions, machine: Machine): LibraryLocation {
  const choice = options.gpu ?? "auto";
  if (options.libraryDirectory !== undefined) {
    return filesIn(options.libraryDirectory, null, choice === "auto" ? "none" : choice, null);
  }
  const candidates = candidatesFor(machine.platform, machine.arch).filter((candidate) => accepts(candidate, choice));
  if (candidates.length === 0) throw noSuchPackage(machine, choice);
  for (const candidate of candidates) {
    const directory = machine.packageDirectory(candidate.packageName);
    if (directory === null) continue;
    if (choice === "auto" && candidate.driver !== "" && !machine.canLoad(candidate.driver)) continue;
    const extension = machine.packageDirectory(`${candidate.packageName}-ext`);
    return filesIn(directory, candidate.packageName, candidate.gpu, extension === null ? null : join(extension, "fallback"));
  }
  throw notInstalled(machine, candidates, choice);
}

/** Best first. */
function candidatesFor(platform: string, arch: string): readonly Candidate[] {
  const cpu = (name: string): Candidate => ({ packageName: `@node-llama-cpp/${name}`, gpu: "none", driver: "" });
  switch (`${platform}-${arch}`) {
    case "linux-x64":
      return [
        { packageName: "@node-llama-cpp/linux-x64-cuda", gpu: "cuda", driver: "libcuda.so.1" },
        { packageName: "@node-llama-cpp/linux-x64-vulkan", gpu: "vulkan", driver: "libvulkan.so.1" },
        cpu("linux-x64"),
      ];
    case "linux-arm64":
      return [cpu("linux-arm64")];
    case "linux-arm":
      return [cpu("linux-armv7l")];
    case "darwin-arm64":
      return [{ packageName: "@node-llama-cpp/mac-arm64-metal", gpu: "metal", driver: "" }];
    case "darwin-x64":
      return [cpu("mac-x64")];
    case "win32-x64":
      return [
        { packageName: "@node-llama-cpp/win-x64-cuda", gpu: "cuda", driver: "nvcuda.dll" },
        { packageName: "@node-llama-cpp/win-x64-vulkan", gpu: "vulkan", driver: "vulkan-1.dll" },
        cpu("win-x64"),
      ];
    case "win32-arm64":
      return [cpu("win-arm64")];
    default:
      return [];
  }
}

/** "none" takes a Metal package too: there is no other for that machine, and no layer goes to the GPU then. */
function accepts(candidate: Candidate, choice: GpuChoice): boolean {
  return choice === "auto" || candidate.gpu === choice || (choice === "none" && candidate.gpu === "metal");
}

function filesIn(
  directory: string,
  packageName: string | null,
  gpu: GpuKind,
  fallbackDirectory: string | null,
): LibraryLocation {
  const names = listDirectory(directory);
  const find = (library: string, middle: string): string => {
    const pattern = new RegExp(`^(lib)?${library}${middle}\\.(so|dylib|dll)$`);
    const matches = names.filter((name) => pattern.test(name));
    if (matches.length === 1 && matches[0] !== undefined) return join(directory, matches[0]);
    throw new CodedError(
      "library_missing",
      `${directory} holds ${matches.length === 0 ? `no ${library}` : matches.join(" and ")} of release ${libraryRelease}; exactly one is needed. ` +
        (packageName === null ? "Name a directory of one release." : `Reinstall ${packageName} (npm ci).`),
    );
  };
  const versioned = `(\\.[a-z]+)?\\.${libraryRelease.replaceAll(".", "\\.")}`;
  return {
    packageName,
    directory,
    ggmlBase: find("ggml-base", ""),
    ggml: find("ggml", versioned),
    llama: find("llama", versioned),
    gpu,
    fallbackDirectory,
  };
}

function listDirectory(directory: string): readonly string[] {
  try {
    return readdirSync(directory);
  } catch (error) {
    throw new CodedError(
      "library_missing",
      `the library directory ${directory} cannot be read (${messageOf(error)}). Name a directory that holds libllama, or install the packages (npm ci).`,
      { cause: error },
    );
  }
}

function noSuchPackage(machine: Machine, choice: GpuChoice): CodedError {
  const place = `${machine.platform} ${machine.arch}`;
  return choice === "auto" || choice === "none"
    ? new CodedError(
        "library_missing",
        `there is no prebuilt libllama for ${place}. Build llama.cpp ${libraryRelease} and name its directory as the library directory.`,
      )
    : new CodedError("library_missing", `there is no ${choice} package for ${place}. Use gpu "auto" or "none".`, {
        param: "gpu",
      });
}

function notInstalled(machine: Machine, candidates: readonly Candidate[], choice: GpuChoice): CodedError {
  const names = candidates.map((candidate) => candidate.packageName).join(", ");
  const first = candidates.at(choice === "auto" ? -1 : 0)?.packageName ?? "";
  return new CodedError(
    "library_missing",
    `no package with libllama for ${machine.platform} ${machine.arch}${choice === "auto" ? "" : ` and gpu "${choice}"`} is installed (looked for ${names}). ` +
      `Run npm ci without --omit=optional, or npm install ${first}@${hashes.packageVersion}.`,
  );
}

/** Directory of the files of an installed package; resolution starts at this package. */
export function installedPackageDirectory(packageName: string): string | null {
  let entry: string;
  try {
    entry = createRequire(import.meta.url).resolve(packageName);
  } catch {
    return null; // not installed: an optional dependency of another platform
  }
  const binaries = join(dirname(dirname(entry)), "bins");
  const folder = readdirSync(binaries)[0];
  return folder === undefined ? null : join(binaries, folder);
}
