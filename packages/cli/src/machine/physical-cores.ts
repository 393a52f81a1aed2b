/** How many compute threads suit this machine. Every graph ends in a spin barrier, so a thread without a core stops them all. */

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { availableParallelism, cpus } from "node:os";
import { type Clock, systemClock } from "@kvasir/kit";

/** Cores that this process may use, hyper-threads of one core counted once where the system tells. */
export function physicalCoreCount(): number {
  const usable = availableParallelism();
  return Math.max(1, Math.min(usable, countCores() ?? usable));
}

function countCores(): number | null {
  try {
    if (process.platform === "linux") return countLinuxCores(readFileSync("/proc/cpuinfo", "utf8"));
    if (process.platform === "darwin") {
      // Performance cores where there are two kinds: the slowest thread of a graph decides.
      return (
        Number(
          execFileSync("sysctl", ["-n", "hw.perflevel0.physicalcpu"], {
            encoding: "utf8",
            stdio: ["ignore", "pipe", "ignore"],
          }),
        ) || null
      );
    }
    return null;
  } catch {
    // No such file or no such key on this system.
    return null;
  }
}

/** Distinct pairs of package and core in `/proc/cpuinfo`; null where it does not list them (most ARM kernels). */
export function countLinuxCores(cpuinfo: string): number | null {
  const cores = new Set<string>();
  for (const processor of cpuinfo.split(/\n\s*\n/)) {
    const core = /^core id\s*:\s*(\d+)/m.exec(processor)?.[1];
    if (core !== undefined) cores.add(`${/^physical id\s*:\s*(\d+)/m.exec(processor)?.[1] ?? 0}/${core}`);
  }
  return cores.size === 0 ? null : cores.size;
}

export interface CpuUse {
  /** Busy and total time of all logical processors, in milliseconds. */
  readonly busyMs: number;
  readonly totalMs: number;
  /** Processor time of this process. */
  readonly ownMs: number;
}

export function readCpuUse(): CpuUse {
  const own = process.cpuUsage();
  let busyMs = 0;
  let totalMs = 0;
  for (const { times } of cpus()) {
    const total = times.user + times.nice + times.sys + times.idle + times.irq;
    totalMs += total;
    busyMs += total - times.idle;
  }
  return { busyMs, totalMs, ownMs: (own.user + own.system) / 1000 };
}

/** Processors that others kept busy between two readings: 0.5 means half of one. */
export function foreignLoad(before: CpuUse, after: CpuUse, processors: number): number {
  const totalMs = after.totalMs - before.totalMs;
  if (totalMs <= 0) return 0;
  const foreignMs = after.busyMs - before.busyMs - (after.ownMs - before.ownMs);
  return Math.max(0, (foreignMs / totalMs) * processors);
}

const sampleMs = 250;
/** Background noise of an idle machine stays below this. */
const busyProcessors = 0.4;

/** All physical cores, one fewer when other programs keep part of one busy. Takes a quarter of a second. */
export async function chooseThreads(
  clock: Clock = systemClock,
): Promise<{ threads: number; cores: number; foreignLoad: number }> {
  const cores = physicalCoreCount();
  const before = readCpuUse();
  await new Promise<void>((elapsed) => {
    const held = setTimeout(() => {}, sampleMs * 2);
    clock.startTimer(sampleMs, () => {
      clearTimeout(held);
      elapsed();
    });
  });
  const load = foreignLoad(before, readCpuUse(), cpus().length);
  const threads = load > busyProcessors && cores > 1 ? cores - 1 : cores;
  return { threads, cores, foreignLoad: load };
}
