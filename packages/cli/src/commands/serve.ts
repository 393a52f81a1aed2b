/** `kvasir serve`: runs a server in this process until a signal ends it. */

import { messageOf } from "@kvasir/kit";
import { progressReporter } from "@kvasir/models";
import type { ResolvedConfiguration } from "../config/resolve-configuration.ts";
import type { CommandContext } from "../context.ts";
import { exitCodeOf } from "../exit-code.ts";
import { createLogger, type Logger } from "../logger.ts";
import { type OpenServer, openServer } from "../serve/open-server.ts";
import { listenForShutdown } from "../serve/shutdown-signals.ts";
import { detachedReport, terminalReport } from "../serve/startup-report.ts";

/** After the drain, this long until processes that do not react are killed. */
const closeGraceMs = 15_000;

/**
 * @param logFile where our output goes when `kvasir start` detached us, else null
 * @returns the exit code
 */
export async function serve(
  configuration: ResolvedConfiguration,
  logFile: string | null,
  context: CommandContext,
): Promise<number> {
  const { stdout, stderr, clock } = context;
  const report = logFile === null ? terminalReport(stdout, stderr) : detachedReport(stdout, stderr);
  const logger = createLogger(configuration.values.logLevel, clock, stderr);
  const { drainTimeoutMs } = configuration.values;
  const givingUp = new AbortController();
  const opened = { server: null as OpenServer | null };
  const stopped = new Promise<void>((resolve, reject) => {
    listenForShutdown(process, clock, (count, signal) => {
      givingUp.abort(new Error(`stopped by ${signal}`));
      if (opened.server === null) return;
      logger.log(
        "info",
        count === 1
          ? `${signal}: draining for up to ${drainTimeoutMs} ms; another signal cuts`
          : `${signal}: cutting what still runs`,
      );
      close(opened.server, count === 1 ? drainTimeoutMs : 0, logger).then(resolve, reject);
    });
  });
  try {
    const server = await openServer(configuration, {
      context,
      logger,
      downloads: progressReporter(report.progressOutput, clock),
      onLoading: (fraction) => report.loading(fraction),
      logFile,
      signal: givingUp.signal,
    });
    opened.server = server;
    if (givingUp.signal.aborted) return await closed(server, logger);
    const outcome = await Promise.race([
      server.ready.then(
        (block) => ({ block }),
        (error: unknown) => ({ error }),
      ),
      stopped,
    ]);
    if (outcome !== undefined && "error" in outcome && !givingUp.signal.aborted) {
      report.failed(describe(outcome.error));
      await close(server, 0, logger);
      return exitCodeOf(outcome.error);
    }
    if (outcome !== undefined && "block" in outcome) report.ready(outcome.block);
    await stopped;
    logger.log("info", "stopped");
    return 0;
  } catch (error) {
    if (givingUp.signal.aborted) return 0;
    report.failed(describe(error));
    return exitCodeOf(error);
  }
}

function describe(error: unknown): string {
  return `kvasir: ${messageOf(error)}`;
}

async function closed(server: OpenServer, logger: Logger): Promise<number> {
  await close(server, 0, logger);
  return 0;
}

/** Closes; an engine process that still lives long after the drain is killed, so that nothing is left behind. */
async function close(server: OpenServer, drainMs: number, logger: Logger): Promise<void> {
  const watchdog = setTimeout(() => {
    logger.log("error", "the engine process does not react; it is killed");
    server.kill();
  }, drainMs + closeGraceMs);
  try {
    await server.close(drainMs);
  } finally {
    clearTimeout(watchdog);
  }
}
