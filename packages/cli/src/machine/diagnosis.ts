/** The checks of `kvasir doctor`, each with what it found and what to do about it. */

import { accessSync, constants, existsSync, mkdirSync, statfsSync } from "node:fs";
import { dirname } from "node:path";
import { formatBytes, formatCount, GIB, messageOf } from "@kvasir/kit";
import { checkLibrary, type LibraryOptions } from "@kvasir/llama";
import { catalogue, type GgufFacts, readGgufFacts } from "@kvasir/models";
import type { Configuration } from "../config/options.ts";
import type { CommandContext } from "../context.ts";
import { planCapacity } from "../serve/capacity-plan.ts";
import { checkPort } from "../servers/port-holder.ts";
import { ServerStates } from "../servers/server-state.ts";
import { findModelFile } from "./find-model.ts";
import { chooseGpuLibrary, hostGpuMachine } from "./gpu-library.ts";
import { chooseThreads } from "./physical-cores.ts";

export interface Finding {
  readonly name: string;
  readonly state: "ok" | "warn" | "FAIL";
  readonly detail: string;
  readonly wayOut: string | null;
}

const oldestNodeMajor = 24;
const comfortableDiskBytes = GIB;

/** Runs all checks; one that fails does not keep the others from running. */
export async function diagnose(configuration: Configuration, context: CommandContext): Promise<Finding[]> {
  const model = await findModel(configuration.model, context);
  return [
    checkNode(),
    await checkLibraryFiles(configuration, model, context),
    await checkProcessors(configuration, context),
    checkModel(configuration, model),
    checkCacheFolder(context.cacheDir),
    await checkAddress(configuration, context),
  ];
}

const ok = (name: string, detail: string): Finding => ({ name, state: "ok", detail, wayOut: null });
const warn = (name: string, detail: string, wayOut: string): Finding => ({ name, state: "warn", detail, wayOut });
/** The messages of our errors end with the way out. */
const fail = (name: string, error: unknown): Finding => ({ name, state: "FAIL", detail: messageOf(error), wayOut: null });

function checkNode(): Finding {
  const version = process.versions.node;
  const detail = `${version} at ${process.execPath}`;
  if (Number(version.split(".")[0]) >= oldestNodeMajor) return ok("node", detail);
  return { name: "node", state: "FAIL", detail, wayOut: `Node ${oldestNodeMajor} is needed: \`npm run kvasir\` brings it` };
}

interface FoundModel {
  readonly path: string;
  readonly facts: GgufFacts;
}

/** The configured model when it is on this machine; null when it has to be fetched; an error when its file is bad. */
async function findModel(reference: string, context: CommandContext): Promise<FoundModel | null | Error> {
  try {
    const path = await findModelFile(reference, context);
    return path === null ? null : { path, facts: await readGgufFacts(path) };
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
}

async function checkLibraryFiles(
  configuration: Configuration,
  model: FoundModel | null | Error,
  context: CommandContext,
): Promise<Finding> {
  try {
    const { library, hint } = await chooseGpuLibrary(configuration, hostGpuMachine(context.cacheDir), () => Promise.resolve());
    const report = await checkLibrary(libraryCheck(library, model));
    const devices = report.gpus.length > 0 ? report.gpus.join(", ") : "no GPU";
    const trial = report.roundTrip === null ? "" : ", computes with the model";
    const detail = `libllama ${report.version} (${report.verification}), CPU ${report.cpuVariant}, ${devices}${trial}; ${report.directory}`;
    const advice = report.gpuProblem ?? hint;
    return advice === null ? ok("library", detail) : warn("library", detail, advice);
  } catch (error) {
    return fail("library", error);
  }
}

function libraryCheck(library: LibraryOptions, model: FoundModel | null | Error): Parameters<typeof checkLibrary>[0] {
  return model === null || model instanceof Error ? { library } : { library, roundTripModel: model.path };
}

async function checkProcessors(configuration: Configuration, { clock }: CommandContext): Promise<Finding> {
  const { cores, threads, foreignLoad } = await chooseThreads(clock);
  const chosen = configuration.threads ?? threads;
  const detail = `${cores} cores, ${chosen} threads, other programs keep ${foreignLoad.toFixed(1)} busy`;
  if (chosen <= cores && foreignLoad + chosen <= cores + 0.5) return ok("processors", detail);
  return warn(
    "processors",
    detail,
    "a thread without a core of its own stops all of them: close other programs, or lower --threads",
  );
}

function checkModel(configuration: Configuration, model: FoundModel | null | Error): Finding {
  if (model instanceof Error) return fail("model", model);
  if (model === null) {
    const entry = catalogue.find(({ name }) => name === configuration.model);
    const size = entry === undefined ? "" : ` (${formatBytes(entry.bytes)})`;
    return warn(
      "model",
      `${configuration.model} is not on this machine${size}`,
      `it is fetched at the first start, or now by \`kvasir pull ${configuration.model}\``,
    );
  }
  const { facts, path } = model;
  try {
    const plan = planCapacity(configuration, facts, process.availableMemory());
    const detail =
      `${path}: ${facts.architecture}, ${facts.fileType}, ${formatBytes(facts.tensorBytes)}; ${plan.laneCount} lanes of ${formatCount(plan.laneTokens)} tokens take ` +
      `${formatBytes(plan.kvBytes)} of the ${formatBytes(process.availableMemory())} there are`;
    if (plan.windowLimit !== "memory") return ok("model", detail);
    return warn(
      "model",
      detail,
      `memory limits the window to less than the ${formatCount(facts.trainingContextTokens)} tokens the model can do: fewer lanes (--max-concurrency) may be longer`,
    );
  } catch (error) {
    return fail("model", error);
  }
}

function checkCacheFolder(folder: string): Finding {
  try {
    mkdirSync(folder, { recursive: true });
    accessSync(folder, constants.W_OK | constants.X_OK);
    const { bavail, bsize } = statfsSync(existsSync(folder) ? folder : dirname(folder));
    const freeBytes = bavail * bsize;
    const detail = `${folder}, ${formatBytes(freeBytes)} free`;
    return freeBytes >= comfortableDiskBytes
      ? ok("cache", detail)
      : warn("cache", detail, "models need space: free some, or set KVASIR_CACHE_DIR to another disk");
  } catch (error) {
    return { ...fail("cache", error), wayOut: `make ${folder} writable, or set KVASIR_CACHE_DIR` };
  }
}

async function checkAddress({ host, port }: Configuration, { cacheDir }: CommandContext): Promise<Finding> {
  try {
    await checkPort(host, port, new ServerStates(cacheDir).list());
    return ok("port", `${port} on ${host} is free`);
  } catch (error) {
    return { ...fail("port", error), state: "warn" };
  }
}
