/**
 * CPU time and memory of a process and all that it started, from Linux' /proc. On other systems every reading is null, and the
 * tables print a dash.
 */

import { readdirSync, readFileSync } from "node:fs";

/** Kernel clock ticks a second; 100 on every Linux that Node runs on (`USER_HZ`). */
const TICKS_PER_SECOND = 100;

export interface ProcessMemory {
  /** Resident bytes summed over the processes; pages that two of them share count twice. */
  readonly residentBytes: number;
  /** Proportional set: a page shared by n processes counts 1/n for each. */
  readonly proportionalBytes: number;
  /** Bytes that no file backs: heaps, KV cells, compute buffers. */
  readonly anonymousBytes: number;
  readonly processes: number;
}

interface ProcessStat {
  readonly pid: number;
  readonly parent: number;
  readonly cpuTicks: number;
}

/** The process and its descendants, itself first. Empty when it is gone. */
export function processTree(pid: number): number[] {
  const stats = readdirSafe("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((name) => readStat(Number(name)))
    .filter((stat) => stat !== null);
  if (!stats.some((stat) => stat.pid === pid)) return [];
  const tree = [pid];
  // the list grows while it is walked
  for (const parent of tree) tree.push(...stats.filter((stat) => stat.parent === parent).map((stat) => stat.pid));
  return tree;
}

/** CPU seconds that the process and its living descendants have used. */
export function cpuSecondsOf(pid: number): number | null {
  const ticks = processTree(pid).map((member) => readStat(member)?.cpuTicks ?? 0);
  return ticks.length === 0 ? null : ticks.reduce((total, value) => total + value, 0) / TICKS_PER_SECOND;
}

/** CPU seconds of children of this process that have ended and been waited for: programs that run once. */
export function endedChildSeconds(): number {
  const fields = statFields("self");
  return fields === null ? 0 : (Number(fields[13]) + Number(fields[14])) / TICKS_PER_SECOND;
}

export function memoryOf(pid: number): ProcessMemory | null {
  const rollups = processTree(pid)
    .map((member) => readRollup(member))
    .filter((rollup) => rollup !== null);
  if (rollups.length === 0) return null;
  const total = (field: string) => rollups.reduce((bytes, rollup) => bytes + (rollup.get(field) ?? 0), 0);
  return {
    residentBytes: total("Rss"),
    proportionalBytes: total("Pss"),
    anonymousBytes: total("Anonymous"),
    processes: rollups.length,
  };
}

function readStat(pid: number): ProcessStat | null {
  const fields = statFields(String(pid));
  return fields === null ? null : { pid, parent: Number(fields[1]), cpuTicks: Number(fields[11]) + Number(fields[12]) };
}

/** `pid (name) state ppid …`: the name may hold spaces and brackets, so fields count from its last bracket, the state being 0. */
function statFields(process: string): string[] | null {
  const text = readTextSafe(`/proc/${process}/stat`);
  return text === null ? null : text.slice(text.lastIndexOf(")") + 2).split(" ");
}

function readRollup(pid: number): Map<string, number> | null {
  const text = readTextSafe(`/proc/${pid}/smaps_rollup`);
  if (text === null) return null;
  const fields = new Map<string, number>();
  for (const [, name, kib] of text.matchAll(/^(\w+):\s+(\d+) kB$/gm)) fields.set(name ?? "", Number(kib) * 1024);
  return fields;
}

function readTextSafe(path: string): string | null {
  try {
    return readFileSync(path, "utf8");
  } catch {
    // not Linux, or the process has ended meanwhile
    return null;
  }
}

function readdirSafe(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    // not Linux
    return [];
  }
}
