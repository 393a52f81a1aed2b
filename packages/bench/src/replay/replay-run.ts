/**
 * Plays planned sessions against a server as a closed loop: each user works through one session after another, one request at
 * a time, with the recorded pauses. Users start one after the other.
 */

import { setTimeout as timeout } from "node:timers/promises";
import { type Clock, systemClock } from "@kvasir/kit";
import { type CompletionCall, type CompletionRecord, type CompletionTarget, complete } from "../completion-client.ts";
import type { PlannedSession } from "./workload.ts";

export interface ReplayOptions {
  /** Sessions alive at once. */
  readonly users: number;
  /** Seconds between the starts of two users. */
  readonly rampSeconds: number;
}

export interface ReplayRow {
  readonly session: number;
  readonly turn: number;
  /** Dispatch, in seconds since the run began. */
  readonly atSeconds: number;
  readonly record: CompletionRecord;
}

export interface ReplayOutcome {
  readonly rows: readonly ReplayRow[];
  /** From the start of the first user to the end of the last response. */
  readonly makespanSeconds: number;
}

/** Time and transport; tests bring their own. */
export interface ReplayWorld {
  readonly clock: Clock;
  sleep(seconds: number): Promise<unknown>;
  send(call: CompletionCall): Promise<CompletionRecord>;
}

export function realWorld(target: CompletionTarget): ReplayWorld {
  return { clock: systemClock, sleep: (seconds) => timeout(seconds * 1000), send: (call) => complete(target, call) };
}

/** A failed request is a row with its error; its session goes on. */
export async function replay(
  sessions: readonly PlannedSession[],
  options: ReplayOptions,
  world: ReplayWorld,
  onRow?: (row: ReplayRow) => void,
): Promise<ReplayOutcome> {
  const waiting = [...sessions.entries()];
  const rows: ReplayRow[] = [];
  const beganMs = world.clock.monotonicMs();
  const secondsSinceStart = () => (world.clock.monotonicMs() - beganMs) / 1000;
  const user = async (position: number) => {
    if (position > 0) await world.sleep(position * options.rampSeconds);
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
      const [session, plan] = next;
      for (const { turn, promptTokens, maxTokens, pauseSeconds } of plan.requests) {
        if (pauseSeconds > 0) await world.sleep(pauseSeconds);
        const atSeconds = secondsSinceStart();
        const row = { session, turn, atSeconds, record: await world.send({ promptTokens, maxTokens }) };
        rows.push(row);
        onRow?.(row);
      }
    }
  };
  await Promise.all(Array.from({ length: options.users }, (_, position) => user(position)));
  return { rows, makespanSeconds: secondsSinceStart() };
}

/** Seconds that the users' starts and pauses alone take when every session has a user of its own. */
export function pauseFloorSeconds(sessions: readonly PlannedSession[], options: ReplayOptions): number {
  if (sessions.length > options.users) return 0;
  return Math.max(
    0,
    ...sessions.map(
      (session, position) =>
        position * options.rampSeconds + session.requests.reduce((total, request) => total + request.pauseSeconds, 0),
    ),
  );
}
