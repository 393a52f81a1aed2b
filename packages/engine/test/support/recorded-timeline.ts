/**
 * Recorded agent sessions as a timeline of prompts: N users work through the sessions one after another, at the recorded pace.
 * Times do not depend on what a cache does, so every policy sees the same timeline. Every token is unique to its prefix: two
 * prompts share a token exactly where they share everything before it.
 */

import { readFileSync } from "node:fs";
import { SeededRandom } from "@kvasir/kit";
import type { TurnEnd } from "../../src/store/return-model.ts";

export interface TimelineEvent {
  readonly timeMs: number;
  /** A prompt arrives, or its answer ends and the lane's tokens can be stored. */
  readonly kind: "start" | "end";
  readonly user: number;
  readonly session: string;
  readonly prompt: Int32Array;
  /** How the turn ends, for `end`. */
  readonly turnEnd: TurnEnd;
}

export interface TimelineOptions {
  readonly users: number;
  /** Recorded tokens that one token here stands for. */
  readonly scale: number;
  /** Order of the sessions. */
  readonly seed: number;
}

interface SessionLine {
  readonly id: string;
  readonly block: number;
  readonly tools: number;
  readonly system: number;
  readonly requests: ReadonlyArray<
    readonly [
      startSeconds: number,
      promptTokens: number,
      outputTokens: number,
      sharedBlocks: number,
      pauseSeconds: number,
      after: "T" | "U",
    ]
  >;
}

/** Seconds between the first sessions of two users, between two sessions of one, and of the last answer of a session. */
const RAMP_SECONDS = 20;
const BREAK_SECONDS = 30;
const LAST_ANSWER_SECONDS = 20;

const recordedSessions = new URL("../../../bench/data/agent-sessions.jsonl", import.meta.url);

export function recordedTimeline({ users, scale, seed }: TimelineOptions): TimelineEvent[] {
  const lines = readFileSync(recordedSessions, "utf8").trim().split("\n");
  const sessions = shuffle(
    lines.map((line) => JSON.parse(line) as SessionLine),
    new SeededRandom(seed),
  );
  const freeAtSeconds = Array.from({ length: users }, (_, user) => user * RAMP_SECONDS);
  const events: TimelineEvent[] = [];
  let serial = 0;
  for (const session of sessions) {
    const beginSeconds = Math.min(...freeAtSeconds);
    const user = freeAtSeconds.indexOf(beginSeconds);
    let previous = head(Math.round((session.tools + session.system) / scale));
    for (const [index, [startSeconds, promptTokens, , sharedBlocks]] of session.requests.entries()) {
      const length = Math.max(1, Math.round(promptTokens / scale));
      const shared = index === 0 ? previous.length : Math.round((sharedBlocks * session.block) / scale);
      const prompt = new Int32Array(length);
      const kept = previous.subarray(0, Math.min(shared, length));
      prompt.set(kept);
      for (let at = kept.length; at < length; at++) prompt[at] = ++serial;
      previous = prompt;
      const next = session.requests[index + 1];
      const endSeconds = Math.max(startSeconds + 0.5, next ? next[0] - next[4] : startSeconds + LAST_ANSWER_SECONDS);
      const turnEnd = next?.[5] === "T" ? "tool-calls" : "answer";
      const common = { user, session: session.id, prompt, turnEnd } as const;
      events.push({ ...common, kind: "start", timeMs: (beginSeconds + startSeconds) * 1000 });
      events.push({ ...common, kind: "end", timeMs: (beginSeconds + endSeconds) * 1000 });
      freeAtSeconds[user] = beginSeconds + endSeconds + BREAK_SECONDS;
    }
  }
  return events.sort((one, other) => one.timeMs - other.timeMs || (one.kind === "end" ? -1 : 1));
}

/** The head that all sessions share: the same tokens, below all others. */
function head(length: number): Int32Array {
  return Int32Array.from({ length }, (_, index) => -1 - index);
}

function shuffle<T>(items: readonly T[], random: SeededRandom): T[] {
  return items
    .map((item) => ({ item, order: random.next() }))
    .sort((one, other) => one.order - other.order)
    .map(({ item }) => item);
}
