/**
 * What a running server tells about itself to `status`, `stop`, `logs` and to a second server that wants its port: one small
 * file a server in `<cache>/run`, written when it listens, removed when it ends. A file whose process is gone counts as absent.
 */

import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";

const schema = z.object({
  version: z.literal(1),
  pid: z.number().int().positive(),
  /** Tells a process from a later one with the same id; null where the system does not say. */
  processStart: z.string().nullable(),
  startedAtMs: z.number(),
  host: z.string(),
  port: z.number().int(),
  /** Base address for clients. */
  address: z.string(),
  model: z.string(),
  modelPath: z.string(),
  contextTokens: z.number(),
  maxConcurrency: z.number(),
  lanes: z.number(),
  kvBytes: z.number(),
  /** Where the messages of a detached server go, or null. */
  logFile: z.string().nullable(),
  needsApiKey: z.boolean(),
});

export type ServerState = z.infer<typeof schema>;

export class ServerStates {
  readonly #folder: string;

  /** @param cacheDir Kvasir's cache folder */
  constructor(cacheDir: string) {
    this.#folder = join(cacheDir, "run");
  }

  /** Writes the state at once, whole. Returns what removes it again. */
  publish(state: ServerState): () => void {
    mkdirSync(this.#folder, { recursive: true });
    const path = join(this.#folder, `${state.host.replace(/[^\w.-]/g, "_")}-${state.port}.json`);
    writeFileSync(`${path}.${process.pid}`, `${JSON.stringify(state, null, 2)}\n`, { mode: 0o600 });
    renameSync(`${path}.${process.pid}`, path);
    return () => {
      if (this.#read(path)?.pid === state.pid) rmSync(path, { force: true });
    };
  }

  /** The servers that run, by port. */
  list(): ServerState[] {
    const names = existsSync(this.#folder) ? readdirSync(this.#folder).filter((name) => name.endsWith(".json")) : [];
    const states = names.flatMap((name) => this.#read(join(this.#folder, name)) ?? []);
    return states.filter(isRunning).sort((x, y) => x.port - y.port);
  }

  #read(path: string): ServerState | null {
    try {
      return schema.parse(JSON.parse(readFileSync(path, "utf8")));
    } catch {
      // Removed in between, or written by another version.
      return null;
    }
  }
}

/** Whether the very process that wrote the state still runs. */
export function isRunning({ pid, processStart }: Pick<ServerState, "pid" | "processStart">): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "EPERM")) return false;
  }
  return processStart === null || startOf(pid) === processStart;
}

/** Start time of a process in clock ticks since boot, on Linux. A zombie has none: it runs no more. */
export function startOf(pid: number): string | null {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
      .replace(/^.*\)\s/s, "")
      .split(" ");
    return fields[0] === "Z" ? null : (fields[19] ?? null);
  } catch {
    // Another system, or the process is gone.
    return null;
  }
}
