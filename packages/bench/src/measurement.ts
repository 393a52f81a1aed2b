/** One figure of one contender in one round, and what surrounded it. */

import { foreignCoresSince, readCpuTimes } from "./machine-load.ts";
import { roundOrder } from "./pair-ratios.ts";
import { cpuSecondsOf, endedChildSeconds } from "./process-usage.ts";

export interface Contender<Value> {
  readonly name: string;
  /** Root process of a server that stays up between its turns; null for a program that runs and ends. */
  readonly pid: number | null;
  measure(round: number): Promise<Value>;
}

export interface Measurement<Value> {
  readonly contender: string;
  readonly round: number;
  readonly value: Value;
  readonly wallSeconds: number;
  /** Cores kept busy by processes that are neither this one, its children, nor a contender. Null: not measurable here. */
  readonly foreignCores: number | null;
  /** CPU seconds that the contenders used whose turn it was not. They should be 0: a waiting server must not spin. */
  readonly idleContenderSeconds: number;
}

/**
 * Runs `rounds` rounds, every contender once a round, the starter moving on by one. Never two at once.
 * @param report called after every measurement
 */
export async function measureInterleaved<Value>(
  contenders: ReadonlyArray<Contender<Value>>,
  rounds: number,
  report: (measurement: Measurement<Value>) => void,
): Promise<Array<Measurement<Value>>> {
  const measurements: Array<Measurement<Value>> = [];
  for (let round = 0; round < rounds; round++) {
    for (const contender of roundOrder(contenders, round)) {
      const measurement = await measureOnce(contender, contenders, round);
      measurements.push(measurement);
      report(measurement);
    }
  }
  return measurements;
}

async function measureOnce<Value>(
  contender: Contender<Value>,
  all: ReadonlyArray<Contender<Value>>,
  round: number,
): Promise<Measurement<Value>> {
  const idlePids = new Set(all.map((other) => other.pid).filter((pid) => pid !== null && pid !== contender.pid));
  const cpuSecondsOfAll = (pids: Iterable<number | null>) =>
    [...pids].reduce<number>((total, pid) => total + (pid === null ? 0 : (cpuSecondsOf(pid) ?? 0)), 0);
  const machineBefore = readCpuTimes();
  const selfBefore = process.cpuUsage();
  const idleBefore = cpuSecondsOfAll(idlePids);
  const ownBefore = cpuSecondsOfAll([contender.pid]) + endedChildSeconds();
  const beganMs = performance.now();
  const value = await contender.measure(round);
  const wallSeconds = (performance.now() - beganMs) / 1000;
  const idleContenderSeconds = cpuSecondsOfAll(idlePids) - idleBefore;
  const ownSeconds = cpuSecondsOfAll([contender.pid]) + endedChildSeconds() - ownBefore;
  const self = process.cpuUsage(selfBefore);
  const explainedSeconds = (self.user + self.system) / 1e6 + idleContenderSeconds + ownSeconds;
  return {
    contender: contender.name,
    round,
    value,
    wallSeconds,
    foreignCores: foreignCoresSince(machineBefore, explainedSeconds, wallSeconds),
    idleContenderSeconds,
  };
}

/** The values of one contender, by round. */
export function valuesOf<Value>(measurements: ReadonlyArray<Measurement<Value>>, contender: string): Value[] {
  return measurements.filter((measurement) => measurement.contender === contender).map((measurement) => measurement.value);
}

/** More foreign load than this during a measurement gets a warning. */
const FOREIGN_CORES_LIMIT = 0.1;

/** What a reader must know about the surroundings of these measurements. */
export function warningsOf(cell: string, measurements: ReadonlyArray<Measurement<unknown>>): string[] {
  return measurements.flatMap(({ contender, round, foreignCores, idleContenderSeconds, wallSeconds }) => [
    ...((foreignCores ?? 0) > FOREIGN_CORES_LIMIT
      ? [`${cell}, ${contender}, round ${round + 1}: other processes used ${foreignCores?.toFixed(2)} cores`]
      : []),
    ...(idleContenderSeconds > 0.02 * wallSeconds + 0.02
      ? [`${cell}, ${contender}, round ${round + 1}: a waiting server used ${idleContenderSeconds.toFixed(2)} CPU seconds`]
      : []),
  ]);
}
