/** Vitest's global setup: makes the folder of the shared server, and stops the server after the last test file. */

import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import type { TestProject } from "vitest/node";
import { type SharedServer, sharedServerFile } from "./shared-server-file.ts";

const stopGraceMs = 20_000;

export default function setup(project: TestProject): () => Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "kvasir-shared-server-"));
  project.provide("sharedServerFolder", folder);
  return async () => {
    const path = join(folder, sharedServerFile);
    if (existsSync(path)) await stop((JSON.parse(readFileSync(path, "utf8")) as SharedServer).pid);
    rmSync(folder, { recursive: true, force: true });
  };
}

async function stop(pid: number): Promise<void> {
  if (!isAlive(pid)) return;
  process.kill(pid, "SIGTERM");
  const deadlineMs = performance.now() + stopGraceMs;
  while (isAlive(pid)) {
    if (performance.now() > deadlineMs) {
      process.kill(pid, "SIGKILL");
      throw new Error(`the shared server (process ${pid}) did not stop within ${stopGraceMs / 1000} s and was killed`);
    }
    await pause(50);
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    // No such process.
    return false;
  }
  try {
    // The process that started it has ended, and not every container has an init that collects it.
    return !/^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    // No /proc here.
    return true;
  }
}
