/** A whole server on a free port over a scripted engine. Everything is real but the kernels. */

import type { Backend, EngineOptions } from "@kvasir/engine";
import { type Clock, systemClock } from "@kvasir/kit";
import { EmbeddedGenerator } from "../../src/embedded-generator.ts";
import { EngineSupervisor, type SupervisorOptions } from "../../src/engine-supervisor.ts";
import type { ModelInfo } from "../../src/generator.ts";
import { type RunningServer, startServer } from "../../src/http/http-server.ts";
import { defaultLimits, type ServerOptions } from "../../src/http/server-options.ts";
import { localSamplingDefaults } from "../../src/sampling-defaults.ts";
import { ByteTokenizer, bytePieces, chatMl, END_TOKEN, speaker } from "./byte-vocabulary.ts";
import { HeldBackend } from "./held-backend.ts";
import { engineDefaults, type ScriptedEngines, scriptedEngines } from "./scripted-engine.ts";

export const testModel: ModelInfo = {
  id: "tiny",
  aliases: ["default", "acme/tiny"],
  createdSeconds: 1_700_000_000,
  ownedBy: "kvasir",
  fingerprint: "fp_test",
  trainedContextTokens: 4096,
  inputModalities: ["text"],
  outputModalities: ["text"],
};

export const testServerOptions: ServerOptions = {
  host: "127.0.0.1",
  port: 0,
  apiKeys: [],
  allowedHosts: [],
  corsOrigins: [],
  ...defaultLimits,
  version: "0.0.0",
};

export interface TestServerOptions {
  readonly server?: Partial<ServerOptions>;
  readonly engine?: Partial<EngineOptions>;
  readonly supervisor?: Partial<SupervisorOptions>;
  /** What the model says to a prompt. */
  readonly reply?: (prompt: string) => string;
  readonly laneTokens?: number;
  readonly laneCount?: number;
  readonly makeBackend?: () => Backend;
  readonly clock?: Clock;
  readonly pendingTimeoutMs?: number;
  /** Leave the engine to the test. */
  readonly start?: boolean;
}

export interface TestServer {
  readonly url: string;
  readonly port: number;
  readonly server: RunningServer;
  readonly supervisor: EngineSupervisor;
  readonly engines: ScriptedEngines;
  readonly generator: EmbeddedGenerator;
  /** The backend that runs now. */
  readonly backend: () => HeldBackend;
  readonly records: Array<Record<string, unknown>>;
  readonly internalErrors: unknown[];
  close(): Promise<void>;
}

export function heldBackend({ reply = () => "Hello", laneTokens = 512, laneCount = 2 }: TestServerOptions = {}): HeldBackend {
  return new HeldBackend({ pieces: bytePieces, endTokens: [END_TOKEN], nextToken: speaker(reply), laneTokens, laneCount });
}

export async function testServer(options: TestServerOptions = {}): Promise<TestServer> {
  const clock = options.clock ?? systemClock;
  const engines = scriptedEngines(options.makeBackend ?? (() => heldBackend(options)), options.engine);
  const supervisor = new EngineSupervisor(engines.launch, { clock: systemClock, firstPauseMs: 1, ...options.supervisor });
  const { maxConcurrency, maxPendingRequests } = { ...engineDefaults, ...options.engine };
  let seed = 0;
  const generator = new EmbeddedGenerator({
    model: testModel,
    engine: supervisor,
    tokenizer: new ByteTokenizer(),
    template: chatMl,
    samplingDefaults: { ...localSamplingDefaults, temperature: 0 },
    capacity: { maxConcurrency, maxPendingRequests },
    pendingTimeoutMs: options.pendingTimeoutMs ?? 60_000,
    newSeed: () => seed++,
  });
  const records: Array<Record<string, unknown>> = [];
  const internalErrors: unknown[] = [];
  const server = await startServer(
    { ...testServerOptions, ...options.server },
    {
      generator,
      clock,
      requestLog: { write: (record) => records.push({ ...record }), close: async () => {} },
      onInternalError: (error) => internalErrors.push(error),
    },
  );
  if (options.start ?? true) await supervisor.start();
  return {
    url: server.address.url,
    port: server.address.port,
    server,
    supervisor,
    engines,
    generator,
    backend: () => engines.backends.at(-1) as HeldBackend,
    records,
    internalErrors,
    close: async () => {
      (engines.backends.at(-1) as HeldBackend | undefined)?.allow(Number.POSITIVE_INFINITY);
      await server.close({ drainMs: 0 });
      await supervisor.close(0);
    },
  };
}
