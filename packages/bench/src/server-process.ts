/**
 * A server that a benchmark starts and stops. Owns the child: nobody else signals it. Closing waits until the process and its
 * descendants are gone, so that the next contender has the cores.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { CodedError } from "@kvasir/kit";
import { firstModelName } from "./completion-client.ts";
import { own } from "./owned-children.ts";
import { processTree } from "./process-usage.ts";

export interface ServerCommand {
  /** For people: `kvasir`, `llama-server`. */
  readonly name: string;
  readonly command: string;
  readonly args: readonly string[];
  readonly environment?: Readonly<Record<string, string>>;
  readonly port: number;
  /** Path that answers 200 when the server can take requests. */
  readonly readyPath: string;
}

export interface RunningServer {
  readonly name: string;
  readonly baseUrl: string;
  readonly model: string;
  readonly pid: number;
  /** The command line, for the record. */
  readonly commandLine: string;
  /** The end of what it has printed. */
  lastOutput(): string;
  close(): Promise<void>;
}

const KEPT_OUTPUT_CHARACTERS = 4000;
const STOP_GRACE_MS = 20_000;

/**
 * @throws CodedError bench_failed with the end of the server's output when it exits early or is not ready in time
 */
export async function startServer(server: ServerCommand, readyTimeoutMs = 120_000): Promise<RunningServer> {
  const environment = { ...withoutServerSettings(process.env), ...server.environment };
  const child = own(spawn(server.command, server.args, { stdio: ["ignore", "pipe", "pipe"], env: environment }));
  let output = "";
  const keep = (chunk: Buffer) => {
    output = (output + chunk.toString("utf8")).slice(-KEPT_OUTPUT_CHARACTERS);
  };
  child.stdout.on("data", keep);
  child.stderr.on("data", keep);
  let spawnFailure: Error | undefined;
  child.once("error", (error) => {
    spawnFailure = error;
  });
  const baseUrl = `http://127.0.0.1:${server.port}`;
  const deadlineMs = performance.now() + readyTimeoutMs;
  const failure = (what: string) =>
    new CodedError("bench_failed", `${server.name} ${what}.\n${commandLine(server)}\n${output}`);
  while (!(await isReady(`${baseUrl}${server.readyPath}`))) {
    if (spawnFailure) throw new CodedError("bench_failed", `${server.command} could not be started: ${spawnFailure.message}`);
    if (child.exitCode !== null || child.signalCode !== null)
      throw failure(`ended with ${child.exitCode ?? child.signalCode} before it was ready`);
    if (performance.now() > deadlineMs) {
      await stop(child);
      throw failure(`was not ready after ${readyTimeoutMs / 1000} s`);
    }
    await sleep(100);
  }
  return {
    name: server.name,
    baseUrl,
    model: await firstModelName(baseUrl),
    pid: child.pid ?? 0,
    commandLine: commandLine(server),
    lastOutput: () => output,
    close: () => stop(child),
  };
}

/** A port that was free a moment ago. */
export async function freePort(): Promise<number> {
  const probe = createServer();
  await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const address = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  if (address === null || typeof address === "string") throw new CodedError("bench_failed", "the system gave no free TCP port");
  return address.port;
}

/** Settings in the caller's environment must not bend a measurement; only the cache folder stays. */
export function withoutServerSettings(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const kept = Object.entries(environment).filter(
    ([name]) => name === "KVASIR_CACHE_DIR" || !/^(KVASIR|LLAMA_ARG)_/.test(name),
  );
  return Object.fromEntries(kept);
}

async function isReady(url: string): Promise<boolean> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(2000) });
    await response.arrayBuffer();
    return response.ok;
  } catch {
    // not listening yet
    return false;
  }
}

async function stop(child: ChildProcess): Promise<void> {
  const pid = child.pid;
  if (pid === undefined) return;
  const members = processTree(pid);
  if (child.exitCode === null && child.signalCode === null) {
    const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()));
    child.kill("SIGTERM");
    const killer = setTimeout(() => child.kill("SIGKILL"), STOP_GRACE_MS);
    await exited;
    clearTimeout(killer);
  }
  // an engine child that outlives its server would compute beside the next contender
  const deadlineMs = performance.now() + STOP_GRACE_MS;
  while (members.slice(1).some(isAlive)) {
    if (performance.now() > deadlineMs)
      throw new CodedError(
        "bench_failed",
        `a process started by ${pid} is still alive: ${members.slice(1).filter(isAlive).join(", ")}`,
      );
    await sleep(50);
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    // ESRCH: gone
    return false;
  }
}

function commandLine(server: ServerCommand): string {
  return [server.command, ...server.args].join(" ");
}
