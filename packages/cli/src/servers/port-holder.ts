/** Whether a port can be had, and who has it when it cannot. */

import { createServer } from "node:net";
import { CodedError, messageOf } from "@kvasir/kit";
import type { ServerState } from "./server-state.ts";

/**
 * Tries the address, so that a conflict is told before a model is fetched or loaded.
 * @throws CodedError port_in_use saying who holds it, or invalid_configuration for an address that is not this machine's
 */
export async function checkPort(host: string, port: number, states: readonly ServerState[]): Promise<void> {
  if (port === 0) return;
  const probe = createServer();
  try {
    await new Promise<void>((resolve, reject) => {
      probe.once("error", reject);
      probe.listen({ host, port, exclusive: true }, resolve);
    });
  } catch (error) {
    throw listenError(error, host, port, states);
  } finally {
    await new Promise<void>((resolve) => {
      probe.close(() => resolve());
    });
  }
}

/** What a failed `listen` means. */
export function listenError(error: unknown, host: string, port: number, states: readonly ServerState[]): CodedError {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (code === "EADDRINUSE") return portInUse(host, port, states);
  const reason = messageOf(error);
  if (code === "EACCES") {
    return new CodedError(
      "invalid_configuration",
      `--port ${port} may not be used by this user (${reason}); take a port of at least 1024.`,
      { param: "port", cause: error },
    );
  }
  return new CodedError(
    "invalid_configuration",
    `--host ${host} cannot be listened on (${reason}); give an address of this machine.`,
    { param: "host", cause: error },
  );
}

function portInUse(host: string, port: number, states: readonly ServerState[]): CodedError {
  const holder = states.find((state) => state.port === port);
  const who =
    holder === undefined
      ? "another program"
      : `Kvasir (process ${holder.pid}, model ${holder.model}, since ${new Date(holder.startedAtMs).toISOString()})`;
  const wayOut =
    holder === undefined
      ? "stop that program, or take another port with --port"
      : `\`kvasir stop --port ${port}\` ends it, or take another port with --port`;
  return new CodedError("port_in_use", `Port ${port} on ${host} is held by ${who}; ${wayOut}.`, { param: "port" });
}
