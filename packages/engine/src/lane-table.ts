/**
 * Which tokens each lane holds, and who uses it. Owned by the engine's step loop; the backend holds the KV itself, this table
 * is its mirror: `length(lane)` equals `backend.storedTokens(lane)` between two steps.
 *
 *   lane tokens   [0 ........ common prefix ........ length ........ laneTokens)
 *                  reused by the next request | cut | free
 *
 * States: empty (no tokens) → running (owned by one request) → idle (its tokens kept for the session's next turn) → running …
 */

import { invariant } from "@kvasir/kit";
import type { LaneState } from "./request.ts";

export interface LaneChoice {
  readonly lane: number;
  /** Leading prompt tokens that the lane holds. */
  readonly sharedTokens: number;
  /** Tokens that the lane holds now; those behind `sharedTokens` are lost. */
  readonly heldTokens: number;
}

class Lane {
  readonly tokens: Int32Array;
  length = 0;
  running = false;
  /** Serial number of the last release; 0 = never used. */
  lastUse = 0;

  constructor(capacity: number) {
    this.tokens = new Int32Array(capacity);
  }

  get state(): LaneState {
    if (this.running) return "running";
    return this.length > 0 ? "idle" : "empty";
  }
}

/** Leading tokens that two sequences share. */
export function commonPrefix(left: Int32Array, right: Int32Array): number {
  const bound = Math.min(left.length, right.length);
  for (let i = 0; i < bound; i++) if (left[i] !== right[i]) return i;
  return bound;
}

export class LaneTable {
  readonly #lanes: readonly Lane[];
  #uses = 0;

  constructor(laneCount: number, laneTokens: number) {
    this.#lanes = Array.from({ length: laneCount }, () => new Lane(laneTokens));
  }

  get laneCount(): number {
    return this.#lanes.length;
  }

  /** Tokens that the lane holds: a view, valid until the lane changes. */
  tokens(lane: number): Int32Array {
    const { tokens, length } = this.#at(lane);
    return tokens.subarray(0, length);
  }

  length(lane: number): number {
    return this.#at(lane).length;
  }

  get hasFreeLane(): boolean {
    return this.#lanes.some((lane) => !lane.running);
  }

  /**
   * The lane where `prompt` costs least, or null when all run. In this order:
   * 1. the lane whose session this prompt continues: it shares at least half of what the lane holds, the longest share first;
   * 2. an empty lane: a short common head is not worth an idle session;
   * 3. the idle lane that was used longest ago.
   */
  choose(prompt: Int32Array): LaneChoice | null {
    let continued: LaneChoice | null = null;
    let fallback: { lane: number; lastUse: number } | null = null;
    for (const [index, lane] of this.#lanes.entries()) {
      if (lane.running) continue;
      const sharedTokens = commonPrefix(lane.tokens.subarray(0, lane.length), prompt);
      const continues = lane.length > 0 && sharedTokens * 2 >= lane.length;
      if (continues && (!continued || sharedTokens > continued.sharedTokens)) {
        continued = { lane: index, sharedTokens, heldTokens: lane.length };
      }
      const lastUse = lane.length === 0 ? -1 : lane.lastUse;
      if (!fallback || lastUse < fallback.lastUse) fallback = { lane: index, lastUse };
    }
    if (continued || !fallback) return continued;
    const held = this.tokens(fallback.lane);
    return { lane: fallback.lane, sharedTokens: commonPrefix(held, prompt), heldTokens: held.length };
  }

  /** Longest prefix of `prompt` that any lane holds, a running one too. */
  longestShared(prompt: Int32Array): number {
    return Math.max(0, ...this.#lanes.map((lane) => commonPrefix(lane.tokens.subarray(0, lane.length), prompt)));
  }

  /** Gives the lane to a request, cut to its first `keptTokens`. */
  take(lane: number, keptTokens: number): void {
    const entry = this.#at(lane);
    invariant(!entry.running, `lane ${lane} is already running`);
    invariant(keptTokens <= entry.length, `lane ${lane} holds ${entry.length} tokens, cannot keep ${keptTokens}`);
    entry.running = true;
    entry.length = keptTokens;
  }

  append(lane: number, tokens: Int32Array): void {
    const entry = this.#at(lane);
    invariant(entry.length + tokens.length <= entry.tokens.length, `lane ${lane} overflows ${entry.tokens.length} tokens`);
    entry.tokens.set(tokens, entry.length);
    entry.length += tokens.length;
  }

  /** Shortens a running lane, after an aborted step or a failure. */
  cut(lane: number, length: number): void {
    const entry = this.#at(lane);
    invariant(length <= entry.length, `lane ${lane} holds ${entry.length} tokens, cannot cut to ${length}`);
    entry.length = length;
  }

  release(lane: number): void {
    const entry = this.#at(lane);
    invariant(entry.running, `lane ${lane} is not running`);
    entry.running = false;
    entry.lastUse = ++this.#uses;
  }

  snapshot(): Array<{ state: LaneState; tokens: number }> {
    return this.#lanes.map((lane) => ({ state: lane.state, tokens: lane.length }));
  }

  #at(lane: number): Lane {
    const entry = this.#lanes[lane];
    invariant(entry, `lane ${lane} does not exist (0..${this.#lanes.length - 1})`);
    return entry;
  }
}
