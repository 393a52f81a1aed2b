/** `kvasir logs [-f]`: the messages of a detached server, or of the last one that ran on the port. */

import { existsSync, readdirSync, statSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { StringDecoder } from "node:string_decoder";
import { CodedError } from "@kvasir/kit";
import { type CommandContext, pause } from "../context.ts";
import { chooseServer } from "../servers/choose-server.ts";
import { isRunning, type ServerState, ServerStates } from "../servers/server-state.ts";

export interface LogsOptions {
  readonly port: number | null;
  readonly follow: boolean;
  /** Lines to show from the end. */
  readonly lines: number;
}

const pollMs = 250;
const readBytes = 64 * 1024;

/** Where the messages of a detached server on `port` go. */
export function logFileOf(cacheDir: string, port: number): string {
  return join(cacheDir, "logs", `server-${port}.log`);
}

export async function logs(options: LogsOptions, context: CommandContext): Promise<void> {
  const states = new ServerStates(context.cacheDir).list();
  const { path, server } = chooseLog(states, options.port, context.cacheDir);
  const file = await open(path, "r");
  try {
    let position = await startOfTail(file, options.lines);
    const decoder = new StringDecoder("utf8");
    for (;;) {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(readBytes), 0, readBytes, position);
      if (bytesRead > 0) {
        context.stdout.write(decoder.write(buffer.subarray(0, bytesRead)));
        position += bytesRead;
      } else if (!options.follow || (server !== null && !isRunning(server))) return;
      else await pause(pollMs);
    }
  } finally {
    await file.close();
  }
}

interface ChosenLog {
  readonly path: string;
  readonly server: ServerState | null;
}

function chooseLog(states: readonly ServerState[], port: number | null, cacheDir: string): ChosenLog {
  const isNamed = states.some((state) => port === null || state.port === port);
  if (isNamed) {
    const server = chooseServer(states, port);
    if (server.logFile !== null) return { path: server.logFile, server };
    throw new CodedError(
      "server_not_running",
      `The server on port ${server.port} (process ${server.pid}) was started by \`kvasir serve\`: its messages are in its terminal.`,
    );
  }
  const path = port === null ? newestLog(join(cacheDir, "logs")) : logFileOf(cacheDir, port);
  if (path !== null && existsSync(path)) return { path, server: null };
  throw new CodedError(
    "server_not_running",
    `No Kvasir server runs${port === null ? "" : ` on port ${port}`} and none has left a log. Start one with \`kvasir start\`.`,
  );
}

function newestLog(folder: string): string | null {
  if (!existsSync(folder)) return null;
  const files = readdirSync(folder).filter((name) => name.endsWith(".log"));
  const dated = files.map((name) => ({ path: join(folder, name), modifiedMs: statSync(join(folder, name)).mtimeMs }));
  return dated.sort((x, y) => y.modifiedMs - x.modifiedMs)[0]?.path ?? null;
}

/** Position of the first of the last `lines` lines. */
async function startOfTail(file: Awaited<ReturnType<typeof open>>, lines: number): Promise<number> {
  const { size } = await file.stat();
  let end = size;
  let left = lines + 1;
  while (end > 0) {
    const length = Math.min(readBytes, end);
    const { buffer } = await file.read(Buffer.alloc(length), 0, length, end - length);
    for (let index = length - 1; index >= 0; index--) {
      if (buffer[index] !== 0x0a) continue;
      // The newline at the very end closes the last line.
      if (--left === 0) return end - length + index + 1;
      if (lines === 0) return size;
    }
    end -= length;
  }
  return 0;
}
