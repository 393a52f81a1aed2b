/**
 * `kvasir stop`: asks the server to drain and waits until its process is gone. The request that stops a draining server, a second
 * `stop` or `--now`, makes it cut what still runs. A server that does not react at all is killed in the end; its engine process
 * then ends by itself.
 */

import { formatDuration } from "@kvasir/kit";
import { type CommandContext, pause } from "../context.ts";
import { chooseServer } from "../servers/choose-server.ts";
import { isRunning, type ServerState, ServerStates } from "../servers/server-state.ts";

export interface StopOptions {
  readonly port: number | null;
  readonly now: boolean;
  readonly all: boolean;
}

const pollMs = 100;
/** How long a server that was told to cut may take before it is killed. */
const cutGraceMs = 15_000;

export async function stop(options: StopOptions, context: CommandContext): Promise<void> {
  const states = new ServerStates(context.cacheDir).list();
  const chosen = options.all && states.length > 0 ? states : [chooseServer(states, options.port)];
  for (const state of chosen) await stopServer(state, options.now, context);
}

async function stopServer(state: ServerState, now: boolean, { clock, stdout, stderr }: CommandContext): Promise<void> {
  const startMs = clock.monotonicMs();
  signal(state, "SIGTERM");
  // Another signal than the first counts as the second one at once; the same one within a second would count as its echo.
  if (now) signal(state, "SIGINT");
  let told = false;
  while (isRunning(state)) {
    const waitedMs = clock.monotonicMs() - startMs;
    if (now && waitedMs > cutGraceMs && isRunning(state)) {
      stderr.write(`process ${state.pid} does not react; it is killed\n`);
      signal(state, "SIGKILL");
    } else if (!now && !told && waitedMs > 1000) {
      told = true;
      stderr.write("waiting for the requests that run; `kvasir stop` again, or --now, cuts them\n");
    }
    await pause(pollMs);
  }
  const seconds = (clock.monotonicMs() - startMs) / 1000;
  const uptime = formatDuration((clock.wallMs() - state.startedAtMs) / 1000);
  stdout.write(`stopped ${state.address} (${state.model}, ran ${uptime}) in ${seconds.toFixed(1)} s\n`);
}

function signal({ pid }: ServerState, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    // It ended in between, which is what is wanted.
    if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
  }
}
