/** `kvasir status`: what runs on this machine, from the state files and each server's own `/health`. */

import { formatBytes, formatCount, formatDuration } from "@kvasir/kit";
import { z } from "zod";
import type { CommandContext } from "../context.ts";
import { type ServerState, ServerStates } from "../servers/server-state.ts";
import { renderTable } from "../table.ts";

/** A server that listens answers at once, whatever its engine does. */
const answerMs = 3000;

/** What is used of `/health`. */
const healthSchema = z.object({
  state: z.string(),
  load_progress: z.number(),
  engine_restarts: z.number(),
  requests: z.object({ running: z.number(), waiting: z.number() }),
});

type Health = z.infer<typeof healthSchema>;

export interface StatusOptions {
  readonly port: number | null;
  readonly asJson: boolean;
}

/** @returns the exit code: 0 when all are ready, 1 when one is not, 3 when none runs */
export async function status({ port, asJson }: StatusOptions, { cacheDir, clock, stdout }: CommandContext): Promise<number> {
  const states = new ServerStates(cacheDir).list().filter((state) => port === null || state.port === port);
  const servers = await Promise.all(states.map(async (state) => ({ ...state, health: await askHealth(state.address) })));
  if (asJson) stdout.write(`${JSON.stringify(servers, null, 2)}\n`);
  else if (servers.length === 0)
    stdout.write(`No Kvasir server runs${port === null ? "" : ` on port ${port}`}. Start one with \`kvasir start\`.\n`);
  else stdout.write(`${servers.map((server) => describe(server, server.health, clock.wallMs())).join("\n\n")}\n`);
  if (servers.length === 0) return 3;
  return servers.every(({ health }) => health?.state === "ready") ? 0 : 1;
}

/** null when the server does not answer, or not as ours does. */
export async function askHealth(address: string): Promise<Health | null> {
  try {
    const response = await fetch(`${address}/health`, { signal: AbortSignal.timeout(answerMs) });
    return healthSchema.parse(await response.json());
  } catch {
    // It is gone, hangs, or is another program.
    return null;
  }
}

function describe(server: ServerState, health: Health | null, nowMs: number): string {
  const load =
    health === null
      ? "unknown"
      : `${health.requests.running} running, ${health.requests.waiting} waiting (${server.maxConcurrency} at a time)`;
  const restarts =
    health === null || health.engine_restarts === 0 ? [] : [["engine", `started again ${health.engine_restarts} times`]];
  const rows = [
    ["model", server.model],
    ["uptime", `${formatDuration((nowMs - server.startedAtMs) / 1000)}, process ${server.pid}`],
    ["load", load],
    ["context", `${formatCount(server.contextTokens)} tokens in ${server.lanes} lanes, ${formatBytes(server.kvBytes)} of KV`],
    ...restarts,
    ["API key", server.needsApiKey ? "needed" : "not needed"],
    ["log", server.logFile ?? "in its terminal"],
  ];
  return `${server.address}  ${stateOf(health)}\n${renderTable(rows)}`;
}

function stateOf(health: Health | null): string {
  if (health === null) return "does not answer";
  return health.state === "starting" ? `loading the model (${Math.floor(health.load_progress * 100)} %)` : health.state;
}
