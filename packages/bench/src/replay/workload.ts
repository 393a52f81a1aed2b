/**
 * Turns recorded sessions into exact prompts, scaled down. A turn repeats the recorded share of the turn before and goes on with new random
 * tokens; every session starts with the same head. Same options, same tokens, on every machine.
 *
 * Ranges of a prompt of `length` tokens:
 *   first turn   [0, headTokens)  the common head     [headTokens, length)  new
 *   later turn   [0, kept)        the turn before     [kept, length)        new
 */

import { CodedError, SeededRandom } from "@kvasir/kit";
import { ordinaryTokens, randomPrompt, type TokenRange } from "../random-prompt.ts";
import type { RecordedSession } from "./recorded-session.ts";

export interface WorkloadOptions {
  readonly sessions: number;
  /** Requests of each session. */
  readonly turns: number;
  /** Recorded tokens for one replayed token. */
  readonly scale: number;
  /** Sessions with a longer scaled prompt are left out. */
  readonly capTokens: number;
  /** Factor on recorded pauses, and the longest pause. */
  readonly pauseFactor: number;
  readonly pauseCapSeconds: number;
  readonly seed: number;
  readonly tokenRange?: TokenRange;
}

export const defaultWorkload: WorkloadOptions = {
  sessions: 10,
  turns: 14,
  scale: 32,
  capTokens: 7600,
  pauseFactor: 1 / 16,
  pauseCapSeconds: 3,
  seed: 1,
};

export interface PlannedRequest {
  readonly turn: number;
  readonly promptTokens: readonly number[];
  readonly maxTokens: number;
  /** Waited before the request; 0 for the first turn. */
  readonly pauseSeconds: number;
}

export interface PlannedSession {
  readonly id: string;
  readonly requests: readonly PlannedRequest[];
}

/** A first prompt below this many scaled tokens is a title or a probe, not an agent at work. */
const LEAST_FIRST_PROMPT_TOKENS = 100;
const LEAST_PROMPT_TOKENS = 8;
/** New tokens that a first turn has at least behind the head. */
const LEAST_OWN_TOKENS = 4;

/** The first `sessions` of the recording that fit. */
export function planWorkload(recorded: readonly RecordedSession[], options: WorkloadOptions): PlannedSession[] {
  const fitting = recorded.filter((session) => fits(session, options)).slice(0, options.sessions);
  if (fitting.length < options.sessions) {
    throw new CodedError(
      "invalid_configuration",
      `${options.sessions} sessions of ${options.turns} turns within ${options.capTokens} tokens are asked for, ${fitting.length} are there. Ask for fewer sessions or turns, or raise --scale or --cap.`,
    );
  }
  const longestHead = Math.max(...fitting.map((session) => Math.round(session.headTokens / options.scale)));
  const head = randomPrompt(new SeededRandom(options.seed), longestHead, options.tokenRange ?? ordinaryTokens);
  return fitting.map((session, index) =>
    planSession(session, head, new SeededRandom((options.seed + 1) * 100_003 + index), options),
  );
}

function fits(session: RecordedSession, { turns, scale, capTokens }: WorkloadOptions): boolean {
  const requests = session.requests.slice(0, turns);
  const first = requests[0];
  if (first === undefined || requests.length < turns || first.promptTokens / scale < LEAST_FIRST_PROMPT_TOKENS) return false;
  return requests.every((request) => request.promptTokens / scale <= capTokens);
}

function planSession(
  session: RecordedSession,
  head: readonly number[],
  random: SeededRandom,
  options: WorkloadOptions,
): PlannedSession {
  const { turns, scale, pauseFactor, pauseCapSeconds, tokenRange = ordinaryTokens } = options;
  let previous: readonly number[] = [];
  const requests = session.requests.slice(0, turns).map((request, turn): PlannedRequest => {
    const length = Math.max(LEAST_PROMPT_TOKENS, Math.round(request.promptTokens / scale));
    const kept =
      turn === 0
        ? head.slice(0, Math.min(Math.round(session.headTokens / scale), length - LEAST_OWN_TOKENS))
        : previous.slice(0, Math.min(Math.round(request.sharedTokens / scale), length - 1));
    const promptTokens = [...kept, ...randomPrompt(random, length - kept.length, tokenRange)];
    previous = promptTokens;
    const pauseSeconds = turn === 0 ? 0 : Math.min(request.pauseSeconds * pauseFactor, pauseCapSeconds);
    return { turn, promptTokens, maxTokens: Math.max(1, Math.round(request.outputTokens / scale)), pauseSeconds };
  });
  return { id: session.id, requests };
}

export function promptTokensOf(sessions: readonly PlannedSession[]): number {
  return sessions.flatMap((session) => session.requests).reduce((total, request) => total + request.promptTokens.length, 0);
}
