/**
 * The engine process: libllama behind our scheduler, driven by the server over the fork's channel. It ends when the channel
 * closes, so it never outlives its server. What libllama says goes to stderr, one line each.
 *
 * Signals that a terminal or a service manager sends to the whole group are the server's business: it drains and closes us.
 */

import { channelToParent, type ChildMessage, Engine, type OpenEngine, type ParentMessage, serveEngine } from "@kvasir/engine";
import { messageOf, systemClock } from "@kvasir/kit";
import { openLlamaBackend } from "@kvasir/llama";
import type { EngineConfig } from "./engine-config.ts";

/** A compute call that hangs must not keep the process once nobody is there. */
const orphanGraceMs = 15_000;
const lastWordsMs = 100;

const open: OpenEngine<EngineConfig> = async (config, hooks) => {
  const backend = await openLlamaBackend({
    library: config.library,
    modelPath: config.modelPath,
    laneCount: config.laneCount,
    laneTokens: config.laneTokens,
    batchTokens: config.batchTokens,
    outputRows: config.outputRows,
    threads: config.threads,
    keyType: config.kvDtype,
    valueType: config.kvDtype,
    gpuLayers: config.gpuLayers,
    onProgress: hooks.progress,
    onLog: ({ text }) => process.stderr.write(`${text.trimEnd()}\n`),
  });
  const engine = new Engine(backend, config.engine, systemClock, hooks.publish, (error) => {
    process.stderr.write(`the engine gives up: ${messageOf(error)}\n`);
    // What was published before is on its way to the server.
    setTimeout(() => process.exit(1), lastWordsMs);
  });
  try {
    await engine.warmUp();
  } catch (error) {
    await engine.close();
    throw error;
  }
  return { engine, facts: backend.facts };
};

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});
process.on("disconnect", () => setTimeout(() => process.exit(1), orphanGraceMs).unref());

await serveEngine<EngineConfig>(channelToParent<ChildMessage, ParentMessage<EngineConfig>>(process), open);
process.exit(0);
