/** What the server is made of, from the configuration, the model and the plan: plain translations, nothing is opened here. */

import { createHash, randomInt } from "node:crypto";
import { statSync } from "node:fs";
import { resolve } from "node:path";
import type { Tokenizer } from "@kvasir/engine";
import { MIB } from "@kvasir/kit";
import { ChatTemplate, type ResolvedModel } from "@kvasir/models";
import {
  defaultLimits,
  type EmbeddedGeneratorParts,
  type EngineSupervisor,
  localSamplingDefaults,
  type ModelInfo,
  type SamplingDefaults,
  type ServerOptions,
} from "@kvasir/server";
import type { Configuration } from "../config/options.ts";
import type { EngineConfig } from "../engine-config.ts";
import { version } from "../version.ts";
import type { PreparedServer } from "./prepare-server.ts";

export function engineConfigOf(
  configuration: Configuration,
  { model, plan, gpu, threads, storePlan }: PreparedServer,
): EngineConfig {
  const { batchTokens, maxConcurrency, maxPendingRequests, itlTargetMs } = configuration;
  const draftTokens = configuration.speculation === "off" ? 0 : configuration.draftTokens;
  return {
    library: gpu.library,
    modelPath: resolve(model.path),
    laneCount: plan.laneCount,
    laneTokens: plan.laneTokens,
    batchTokens,
    // Two requests may draft in full at once; more share these rows. Each costs a row of logits.
    outputRows: Math.min(plan.laneCount + 2 * draftTokens, batchTokens),
    threads,
    kvDtype: configuration.kvDtype,
    gpuLayers: configuration.gpuLayers ?? -1,
    ...storePlan,
    engine: { maxConcurrency, maxPendingRequests, itlTargetMs, prefillChunkTokens: batchTokens, draftTokens },
  };
}

export function generatorPartsOf(
  configuration: Configuration,
  model: ResolvedModel,
  tokenizer: Tokenizer,
  engine: EngineSupervisor,
): EmbeddedGeneratorParts {
  const template = ChatTemplate.forModel(model.facts, {
    controlTexts: tokenizer.controlTexts,
    addsBos: tokenizer.bosToken !== null,
  });
  return {
    model: modelInfoOf(configuration, model),
    engine,
    tokenizer,
    template,
    samplingDefaults: samplingDefaultsOf(configuration, model),
    capacity: { maxConcurrency: configuration.maxConcurrency, maxPendingRequests: configuration.maxPendingRequests },
    pendingTimeoutMs: configuration.pendingTimeoutMs,
    newSeed: () => randomInt(2 ** 32),
  };
}

export function serverOptionsOf(configuration: Configuration, apiKeys: readonly string[]): ServerOptions {
  const { host, port, allowedHosts, corsOrigins, maxBodyMib } = configuration;
  return { ...defaultLimits, host, port, apiKeys, allowedHosts, corsOrigins, bodyLimitBytes: maxBodyMib * MIB, version };
}

/** Options beat the advice in the model file, which beats what local servers use. */
function samplingDefaultsOf({ temperature, topK, topP, minP }: Configuration, { facts }: ResolvedModel): SamplingDefaults {
  const asked = Object.entries({ temperature, topK, topP, minP }).filter(([, value]) => value !== null);
  return { ...localSamplingDefaults, ...facts.sampling, ...Object.fromEntries(asked) };
}

function modelInfoOf(configuration: Configuration, { id, name, path, facts }: ResolvedModel): ModelInfo {
  const aliases = new Set([configuration.model, name]);
  aliases.delete(id);
  return {
    id,
    aliases: [...aliases],
    createdSeconds: Math.floor(statSync(path).mtimeMs / 1000),
    ownedBy: "kvasir",
    fingerprint: fingerprintOf([id, facts.fileBytes, facts.fileType, facts.parameterCount, configuration.kvDtype, version]),
    trainedContextTokens: facts.trainingContextTokens,
    inputModalities: ["text"],
    outputModalities: ["text"],
  };
}

function fingerprintOf(parts: readonly unknown[]): string {
  return `fp_${createHash("sha256").update(JSON.stringify(parts)).digest("hex").slice(0, 12)}`;
}
