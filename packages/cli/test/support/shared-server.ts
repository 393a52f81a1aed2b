/**
 * One server on the real default model for all test files of a run. The first test that asks starts it, the others find it by a
 * file in a folder that `shared-server-setup.ts` makes before the run and clears away, with the server, after it.
 *
 * Tests must leave it as they found it: no stop, no kill, no reliance on a free lane or an empty cache. It listens on a free port, has
 * 4 lanes of 2,048 tokens and needs no key. `KVASIR_TEST_MODEL` names a model file, so that none is downloaded.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdirSync, openSync, closeSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { inject } from "vitest";
import { type SharedServer, sharedServerFile } from "./shared-server-file.ts";

const failureFile = "failure.txt";
const startingFolder = "starting";
const logFile = "server.log";

const pollMs = 50;

/** The running server; started when this is the first call of the run. Give the hook time: a missing model is downloaded. */
export async function sharedServer(): Promise<SharedServer> {
  const folder = inject("sharedServerFolder");
  if (isFirst(folder)) await start(folder);
  for (;;) {
    const failurePath = join(folder, failureFile);
    if (existsSync(failurePath)) throw new Error(`the shared server did not start:\n${readFileSync(failurePath, "utf8")}`);
    const path = join(folder, sharedServerFile);
    if (existsSync(path)) return JSON.parse(readFileSync(path, "utf8")) as SharedServer;
    await pause(pollMs);
  }
}

/** Making a folder succeeds once, whoever asks at the same time. */
function isFirst(folder: string): boolean {
  try {
    mkdirSync(join(folder, startingFolder));
    return true;
  } catch {
    // It exists: another test file is starting the server.
    return false;
  }
}

/** Leaves either the server's file or the failure's in the folder. */
async function start(folder: string): Promise<void> {
  const logPath = join(folder, logFile);
  const log = openSync(logPath, "a");
  const model = process.env["KVASIR_TEST_MODEL"];
  const arguments_ = ["serve", "--port", "0", "--max-context-tokens", "2048", ...(model ? ["--model", model] : [])];
  const mainPath = fileURLToPath(new URL("../../src/main.ts", import.meta.url));
  const child = spawn(process.execPath, [mainPath, ...arguments_], {
    env: environment(folder),
    stdio: ["ignore", log, log],
  });
  closeSync(log);
  // It outlives the test file that started it.
  child.unref();
  try {
    writeWhole(join(folder, sharedServerFile), JSON.stringify(await whenReady(child, logPath)));
  } catch (error) {
    writeWhole(join(folder, failureFile), String(error));
  }
}

async function whenReady(child: ChildProcess, logPath: string): Promise<SharedServer> {
  for (;;) {
    const log = readFileSync(logPath, "utf8");
    const address = /ready on (http:\S+)/.exec(log)?.[1];
    if (address !== undefined && child.pid !== undefined) {
      const models = (await (await fetch(`${address}/v1/models`)).json()) as { data: ReadonlyArray<{ id: string }> };
      return { address, model: models.data[0]?.id ?? "", pid: child.pid };
    }
    if (child.exitCode !== null || child.signalCode !== null)
      throw new Error(`it ended with ${child.exitCode}: ${log.slice(-2000)}`);
    await pause(pollMs);
  }
}

/** Only the places of caches stay: a user's settings and configuration file must not reach the tests. */
function environment(folder: string): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => name === "KVASIR_CACHE_DIR" || !name.startsWith("KVASIR_"));
  return { ...Object.fromEntries(kept), XDG_CONFIG_HOME: folder };
}

function writeWhole(path: string, content: string): void {
  writeFileSync(`${path}.new`, content);
  renameSync(`${path}.new`, path);
}
