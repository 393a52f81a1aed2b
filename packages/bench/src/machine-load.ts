/**
 * Is anybody else computing? Graphs on all cores end every operation in a spin barrier, so one foreign process at 100 % makes
 * a run up to 25 times slower. Two views: what /proc/stat says of the whole machine, and whether a spin on every core at once gets
 * its cores (this one also sees a noisy neighbour below a virtual machine, and a CPU quota).
 */

import { readFileSync } from "node:fs";
import { loadavg } from "node:os";
import { Worker } from "node:worker_threads";

export interface CpuTimes {
  /** Seconds of all cores in user, system, interrupts; idle and waiting for a disk left out. */
  readonly busySeconds: number;
  /** Seconds that the hypervisor gave to others. */
  readonly stolenSeconds: number;
}

export interface MachineLoad {
  readonly loadAverage1m: number;
  /** Cores that others kept busy during the idle second, or null where /proc/stat is missing. */
  readonly foreignCores: number | null;
  /** CPU time ÷ wall time of a spin on every core at once: 1 on a quiet machine. */
  readonly spinShare: number;
}

/** A machine is quiet when others use less than this many cores … */
export const QUIET_FOREIGN_CORES = 0.05;
/** … and a spin gets at least this share of every core. */
export const QUIET_SPIN_SHARE = 0.97;

export function isQuiet(load: MachineLoad): boolean {
  return (load.foreignCores ?? 0) <= QUIET_FOREIGN_CORES && load.spinShare >= QUIET_SPIN_SHARE;
}

export function describeLoad(load: MachineLoad): string {
  const foreign = load.foreignCores === null ? "unknown" : load.foreignCores.toFixed(2);
  return `others use ${foreign} cores (limit ${QUIET_FOREIGN_CORES}), a spin on every core gets ${(load.spinShare * 100).toFixed(1)} % (limit ${QUIET_SPIN_SHARE * 100} %), load average ${load.loadAverage1m.toFixed(2)}`;
}

/** A single spin may meet a passing interrupt or our own garbage collector; a busy machine spoils all of them. */
const SPIN_ATTEMPTS = 4;

/** Takes two to four seconds. @param cores spinning threads */
export async function measureLoad(cores: number): Promise<MachineLoad> {
  const before = readCpuTimes();
  const beganMs = performance.now();
  const ownBefore = process.cpuUsage();
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const foreignCores = foreignCoresSince(before, ownSeconds(ownBefore), (performance.now() - beganMs) / 1000);
  let best = 0;
  for (let attempt = 0; attempt < SPIN_ATTEMPTS && best < QUIET_SPIN_SHARE; attempt++) {
    const shares = await Promise.all(Array.from({ length: cores }, () => spinShare(500)));
    best = Math.max(best, Math.min(...shares));
  }
  return { loadAverage1m: loadavg()[0] ?? 0, foreignCores, spinShare: best };
}

/** Busy cores since `before` that `ownSeconds` of CPU do not explain. Null where the machine's times cannot be read. */
export function foreignCoresSince(before: CpuTimes | null, ownCpuSeconds: number, wallSeconds: number): number | null {
  const now = readCpuTimes();
  if (before === null || now === null || wallSeconds <= 0) return null;
  const busy = now.busySeconds - before.busySeconds + now.stolenSeconds - before.stolenSeconds;
  return Math.max(0, busy - ownCpuSeconds) / wallSeconds;
}

export function readCpuTimes(): CpuTimes | null {
  let text: string;
  try {
    text = readFileSync("/proc/stat", "utf8");
  } catch {
    // not Linux: the spin alone decides
    return null;
  }
  // user nice system idle iowait irq softirq steal, in ticks of 10 ms
  const ticks = (/^cpu\s+(.*)$/m.exec(text)?.[1] ?? "").split(/\s+/).map(Number);
  const [user = 0, nice = 0, system = 0, , , irq = 0, softIrq = 0, steal = 0] = ticks;
  return { busySeconds: (user + nice + system + irq + softIrq) / 100, stolenSeconds: steal / 100 };
}

function ownSeconds(before: NodeJS.CpuUsage): number {
  const used = process.cpuUsage(before);
  return (used.user + used.system) / 1e6;
}

/** One thread that spins: its own CPU time over the wall time. */
function spinShare(durationMs: number): Promise<number> {
  const source = `
    const { parentPort, workerData } = require("node:worker_threads");
    const wall = performance.now();
    const cpu = process.threadCpuUsage();
    let x = 1;
    while (performance.now() - wall < workerData) for (let i = 0; i < 10000; i++) x = (Math.imul(x, 1664525) + 1013904223) | 0;
    const used = process.threadCpuUsage(cpu);
    parentPort.postMessage((used.user + used.system) / 1000 / (performance.now() - wall) + (x === 0 ? 1e-9 : 0));`;
  return new Promise((resolve, reject) => {
    const worker = new Worker(source, { eval: true, workerData: durationMs });
    worker.once("message", resolve);
    worker.once("error", reject);
  });
}
