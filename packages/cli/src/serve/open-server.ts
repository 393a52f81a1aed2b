/**
 * The composition root: from a configuration to a server that answers. Opens, in this order, what the one before needs, and
 * closes in reverse order. Everything that can be refused is refused before a model is loaded.
 *
 *   keys, port → library → model file → plan → tokenizer, request log → HTTP (listens at once) → engine process → ready
 */

import { resolve } from "node:path";
import { CodedError, invariant, JsonlWriter, MIB, messageOf } from "@kvasir/kit";
import { openTokenizer } from "@kvasir/llama";
import {
  EmbeddedGenerator,
  EngineSupervisor,
  type GeneratorState,
  noRecordWriter,
  type RecordWriter,
  type RunningServer,
  startServer,
} from "@kvasir/server";
import type { Configuration } from "../config/options.ts";
import type { ResolvedConfiguration } from "../config/resolve-configuration.ts";
import type { Logger } from "../logger.ts";
import { checkPort } from "../servers/port-holder.ts";
import { ServerStates, startOf } from "../servers/server-state.ts";
import { readApiKeys } from "./api-keys.ts";
import { EngineLauncher } from "./launch-engine.ts";
import { type PreparationHost, type PreparedServer, prepareServer } from "./prepare-server.ts";
import { clientAddress, readyBlock } from "./ready-block.ts";
import { engineConfigOf, generatorPartsOf, serverOptionsOf } from "./server-parts.ts";

export interface ServerHost extends PreparationHost {
  /** The share of the model that is loaded, 0 to 1. */
  readonly onLoading: (fraction: number) => void;
  /** Where the messages of a detached server go, or null. */
  readonly logFile: string | null;
}

export interface OpenServer {
  readonly address: string;
  /** Resolves with the block to print when the first token is possible; rejects when the model cannot be loaded. */
  readonly ready: Promise<string>;
  /** Requests in flight have `drainMs` to end. Called again, a smaller `drainMs` shortens the wait. */
  close(drainMs: number): Promise<void>;
  /** The last resort for engine processes that do not react. */
  kill(): void;
}

/** @throws CodedError why there will be no server; nothing is left open then */
export async function openServer(configuration: ResolvedConfiguration, host: ServerHost): Promise<OpenServer> {
  const { values } = configuration;
  const { context, logger } = host;
  const states = new ServerStates(context.cacheDir);
  const apiKeys = readApiKeys(values);
  await checkPort(values.host, values.port, states.list());
  const prepared = await prepareServer(values, host);
  const { model, plan } = prepared;
  const closers: Array<() => unknown> = [];
  try {
    const tokenizer = await openTokenizer(model.path, prepared.gpu.library);
    closers.push(() => tokenizer.close());
    const requestLog = await openRequestLog(values, logger);
    closers.push(() => requestLog.close());
    const launcher = engineLauncher(values, prepared, logger);
    const { onLoading } = host;
    const launch = (onProgress: (fraction: number) => void) =>
      launcher.launch((fraction) => {
        onProgress(fraction);
        onLoading(fraction);
      });
    const supervisor = new EngineSupervisor(launch, {
      clock: context.clock,
      onState: (state, cause) => logState(logger, state, cause),
    });
    const server = await startServer(serverOptionsOf(values, apiKeys), {
      generator: new EmbeddedGenerator(generatorPartsOf(values, model, tokenizer, supervisor)),
      clock: context.clock,
      requestLog,
      onInternalError: (error, requestId) =>
        logger.log(
          "error",
          `request ${requestId}: ${error instanceof Error ? (error.stack ?? error.message) : messageOf(error)}`,
        ),
    });
    closers.push(
      () => supervisor.close(0),
      () => server.close({ drainMs: 0 }),
    );
    const address = clientAddress(values.host, server.address.port);
    closers.push(states.publish(stateOf(values, host, prepared, address, server, apiKeys)));
    const ready = supervisor
      .start()
      .then((backend) => readyBlock({ address, model, plan, storePlan: prepared.storePlan, backend, configuration }));
    // The caller may look at it later; a failure before that is not unhandled.
    ready.catch(() => {});
    return { address, ready, close: closeOnce(server, supervisor, closers), kill: () => launcher.killAll() };
  } catch (error) {
    await closeAll(closers);
    throw error;
  }
}

async function openRequestLog({ requestLog, requestLogMaxMib }: Configuration, logger: Logger): Promise<RecordWriter> {
  if (requestLog === null) return noRecordWriter;
  try {
    const writer = await JsonlWriter.open({
      path: resolve(requestLog),
      maxBytes: requestLogMaxMib * MIB,
      onError: (error) =>
        logger.log("error", `the request log ${requestLog} cannot be written, records are lost: ${error.message}`),
    });
    return { write: (record) => writer.append(record), close: () => writer.close() };
  } catch (error) {
    throw new CodedError(
      "invalid_configuration",
      `--request-log ${requestLog} cannot be opened (${messageOf(error)}); give a file that this user may write.`,
      {
        param: "requestLog",
        cause: error,
      },
    );
  }
}

function engineLauncher(values: Configuration, prepared: PreparedServer, logger: Logger): EngineLauncher {
  return new EngineLauncher(engineConfigOf(values, prepared), {
    line: (text) => logger.log("debug", `engine: ${text}`),
    crashed: (how, lastLines) =>
      logger.log("error", ["the engine process ended:", how, ...lastLines.slice(-5).map((line) => `\n${line}`)].join(" ")),
  });
}

function logState(logger: Logger, state: GeneratorState, cause: unknown): void {
  const reason = cause === null || cause === undefined ? "" : `: ${messageOf(cause)}`;
  logger.log(state === "restarting" ? "warn" : "debug", `engine ${state}${reason}`);
}

function stateOf(
  values: Configuration,
  { context, logFile }: ServerHost,
  { model, plan }: PreparedServer,
  address: string,
  server: RunningServer,
  apiKeys: readonly string[],
) {
  return {
    version: 1,
    pid: process.pid,
    processStart: startOf(process.pid),
    startedAtMs: context.clock.wallMs(),
    host: values.host,
    port: server.address.port,
    address,
    model: model.id,
    modelPath: model.path,
    contextTokens: plan.laneTokens,
    maxConcurrency: plan.maxConcurrency,
    lanes: plan.laneCount,
    kvBytes: plan.kvBytes,
    logFile,
    needsApiKey: apiKeys.length > 0,
  } as const;
}

/** HTTP drains first; then nothing is left that needs the engine, and the rest closes. */
function closeOnce(
  server: RunningServer,
  supervisor: EngineSupervisor,
  closers: ReadonlyArray<() => unknown>,
): OpenServer["close"] {
  let closed: Promise<void> | null = null;
  return (drainMs) => {
    const drained = server.close({ drainMs });
    // An engine that still loads has nothing to drain.
    if (supervisor.state === "starting") void supervisor.close(0);
    closed ??= drained.then(() => closeAll(closers));
    return closed;
  };
}

/** In reverse order of opening; one that fails does not keep the others open. */
async function closeAll(closers: ReadonlyArray<() => unknown>): Promise<void> {
  const failures: unknown[] = [];
  for (const close of [...closers].reverse()) {
    try {
      await close();
    } catch (error) {
      failures.push(error);
    }
  }
  invariant(failures.length === 0, `closing failed: ${failures.map(messageOf).join("; ")}`);
}
