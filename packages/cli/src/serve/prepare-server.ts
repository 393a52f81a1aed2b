/** Everything that is found out before something is opened: library, model file, lanes, threads. Fetches what is missing. */

import { formatCount } from "@kvasir/kit";
import { type ProgressReporter, type ResolvedModel, resolveModel } from "@kvasir/models";
import type { Configuration } from "../config/options.ts";
import type { CommandContext } from "../context.ts";
import type { Logger } from "../logger.ts";
import { chooseGpuLibrary, type GpuLibrary, hostGpuMachine } from "../machine/gpu-library.ts";
import { chooseThreads } from "../machine/physical-cores.ts";
import { type CapacityPlan, planCapacity } from "./capacity-plan.ts";
import { planStore, type StorePlan } from "./store-plan.ts";

export interface PreparationHost {
  readonly context: CommandContext;
  readonly logger: Logger;
  readonly downloads: ProgressReporter;
  /** Aborted when the start is to be given up. */
  readonly signal: AbortSignal;
}

export interface PreparedServer {
  readonly model: ResolvedModel;
  readonly plan: CapacityPlan;
  readonly gpu: GpuLibrary;
  readonly threads: number;
  readonly storePlan: StorePlan;
}

/** @throws CodedError for a model or a plan that cannot work here */
export async function prepareServer(
  values: Configuration,
  { context, logger, downloads, signal }: PreparationHost,
): Promise<PreparedServer> {
  const gpu = await chooseGpuLibrary(values, hostGpuMachine(context.cacheDir));
  if (gpu.hint !== null) logger.log("info", gpu.hint);
  const cores = chooseThreads(context.clock);
  const memory = gpu.usesDeviceMemory ? { memoryBytes: Number.POSITIVE_INFINITY } : {};
  const model = await resolveModel(values.model, {
    cacheDir: context.cacheDir,
    env: context.environment,
    onProgress: downloads.onProgress,
    clock: context.clock,
    signal,
    ...memory,
  }).finally(() => downloads.finish());
  const plan = planCapacity(values, model.facts, gpu.usesDeviceMemory ? null : process.availableMemory());
  const onHost = gpu.usesDeviceMemory ? 0 : model.facts.tensorBytes + plan.kvBytes;
  const storePlan = planStore(values, process.availableMemory() - onHost, context.cacheDir);
  const { threads, foreignLoad } = await cores;
  if (values.threads === null)
    logger.log("debug", `${threads} threads, other programs keep ${foreignLoad.toFixed(2)} processors busy`);
  adviseOnPlan(values, model, plan, logger);
  return { model, plan, gpu, threads: values.threads ?? threads, storePlan };
}

function adviseOnPlan(values: Configuration, model: ResolvedModel, plan: CapacityPlan, logger: Logger): void {
  const trained = model.facts.trainingContextTokens;
  if (plan.laneTokens > trained) {
    logger.log(
      "warn",
      `--max-context-tokens is ${formatCount(plan.laneTokens)}, the model was trained for ${formatCount(trained)}: longer prompts lose quality`,
    );
  }
  if (plan.windowLimit === "memory") {
    logger.log(
      "warn",
      `memory limits a request to ${formatCount(plan.laneTokens)} of ${formatCount(trained)} tokens; with fewer lanes (--max-concurrency) a request may be longer`,
    );
  }
  if (values.kvDtype.startsWith("q"))
    logger.log(
      "warn",
      `--kv-dtype ${values.kvDtype} makes prefill on a CPU two to four times slower; f16 is fastest where it fits`,
    );
}
