/**
 * The engine process: libllama behind our scheduler, driven by the server over the fork's channel. It ends when the channel
 * closes, so it never outlives its server. What libllama says goes to stderr, one line each.
 *
 * Signals that a terminal or a service manager sends to the whole group are the server's business: it drains and closes us.
 */

import {
  channelToParent,
  type ChildMessage,
  Engine,
  type OpenEngine,
  type ParentMessage,
  type PrefixReuse,
  PrefixStore,
  serveEngine,
} from "@kvasir/engine";
import { messageOf, systemClock } from "@kvasir/kit";
import { type LlamaBackend, openLlamaBackend } from "@kvasir/llama";
import type { EngineConfig } from "./engine-config.ts";
import { storeFingerprint } from "./store-fingerprint.ts";

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
  const { reuse, pageRefusal } = await openReuse(backend, config).catch(async (error) => {
    await backend.close();
    throw error;
  });
  const giveUp = (error: unknown): void => {
    process.stderr.write(`the engine gives up: ${messageOf(error)}\n`);
    // What was published before is on its way to the server.
    setTimeout(() => process.exit(1), lastWordsMs);
  };
  const engine = new Engine(backend, config.engine, systemClock, hooks.publish, giveUp, reuse);
  try {
    await engine.warmUp();
  } catch (error) {
    await engine.close();
    throw error;
  }
  return { engine, facts: { ...backend.facts, pageRefusal } };
};

/** The prefix store, for a model whose memory can be cut into pages. */
async function openReuse(
  backend: LlamaBackend,
  { modelPath, kvDtype, hostCacheBytes, disk }: EngineConfig,
): Promise<{ reuse: PrefixReuse | null; pageRefusal: string | null }> {
  const opened = await backend.openRows();
  if ("refusal" in opened) return { reuse: null, pageRefusal: opened.refusal };
  const { layout } = opened.rows;
  const fingerprint = storeFingerprint(modelPath, kvDtype, layout.rowBytes, backend.libraryFile);
  const store = new PrefixStore({
    layout,
    hostBudgetBytes: hostCacheBytes,
    ...(disk === null ? {} : { disk: { ...disk, fingerprint } }),
    clock: systemClock,
    // Attention makes deep tokens dearer: a + b × depth, with the ratio of a small model; only comparisons matter.
    recomputeMs: (from, to) => (to - from) * (1 + (from + to) / 8000),
  });
  return { reuse: { rows: opened.rows, store, storeTurns: disk !== null }, pageRefusal: null };
}

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});
process.on("disconnect", () => setTimeout(() => process.exit(1), orphanGraceMs).unref());

await serveEngine<EngineConfig>(channelToParent<ChildMessage, ParentMessage<EngineConfig>>(process), open);
process.exit(0);
