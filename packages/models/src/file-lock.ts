/**
 * A lock file between processes, so that the second of two pulls waits for the first instead of loading the same bytes.
 *
 * It saves work, it does not protect data: downloads are safe without it, because a model appears under its name only by a
 * rename of a whole, checked file. So a lock whose holder is gone (its process, or 30 seconds without a sign of life) is taken
 * over without more ado.
 */

import { randomBytes } from "node:crypto";
import { mkdir, open, readFile, rename, rm, stat, utimes } from "node:fs/promises";
import { hostname } from "node:os";
import { dirname } from "node:path";
import { setTimeout as wait } from "node:timers/promises";

export interface FileLockOptions {
  readonly signal?: AbortSignal;
  /** Called once when another process holds the lock. */
  readonly onWaiting?: () => void;
}

const SIGN_OF_LIFE_MS = 5_000;
const STALE_MS = 30_000;
const POLL_MS = 200;

/** Runs `work` while this process holds the lock; waits as long as a living process holds it. */
export async function withFileLock<Result>(
  path: string,
  options: FileLockOptions,
  work: () => Promise<Result>,
): Promise<Result> {
  await mkdir(dirname(path), { recursive: true });
  let waiting = false;
  while (!(await tryCreate(path))) {
    if (await isAbandoned(path)) {
      await takeAway(path);
      continue;
    }
    if (!waiting) options.onWaiting?.();
    waiting = true;
    await wait(POLL_MS, undefined, options.signal ? { signal: options.signal } : {});
  }
  const signOfLife = setInterval(() => void touch(path), SIGN_OF_LIFE_MS);
  signOfLife.unref();
  try {
    return await work();
  } finally {
    clearInterval(signOfLife);
    await rm(path, { force: true });
  }
}

async function tryCreate(path: string): Promise<boolean> {
  try {
    const handle = await open(path, "wx");
    try {
      await handle.writeFile(JSON.stringify({ pid: process.pid, host: hostname() }));
    } finally {
      await handle.close();
    }
    return true;
  } catch (error) {
    if (hasCode(error, "EEXIST")) return false;
    throw error;
  }
}

async function isAbandoned(path: string): Promise<boolean> {
  try {
    const { mtimeMs } = await stat(path);
    if (Date.now() - mtimeMs > STALE_MS) return true;
    const holder: unknown = JSON.parse(await readFile(path, "utf8"));
    if (typeof holder !== "object" || holder === null || !("pid" in holder) || !("host" in holder)) return false;
    return holder.host === hostname() && typeof holder.pid === "number" && !isAlive(holder.pid);
  } catch {
    // released in this moment, or not written yet
    return false;
  }
}

/** By rename: of several processes that see the same abandoned lock, one takes it away. */
async function takeAway(path: string): Promise<void> {
  const aside = `${path}.${randomBytes(4).toString("hex")}`;
  try {
    await rename(path, aside);
    await rm(aside, { force: true });
  } catch {
    // another process was faster
  }
}

async function touch(path: string): Promise<void> {
  const now = new Date();
  await utimes(path, now, now).catch(() => {
    // the folder was removed under us; the work itself will tell
  });
}

/** Whether a process of this machine exists. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return hasCode(error, "EPERM");
  }
}

function hasCode(error: unknown, code: string): boolean {
  return error instanceof Error && "code" in error && error.code === code;
}
