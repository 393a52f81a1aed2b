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

/** What a lane would mean for a prompt. */
export interface LaneView {
  readonly lane: number;
  readonly state: LaneState;
  /** Leading prompt tokens that the lane holds; 0 in another namespace. */
  readonly sharedTokens: number;
  /** Tokens that the lane holds now. */
  readonly heldTokens: number;
  /** Grows with every release; 0 for a lane that was never used. */
  readonly lastUse: number;
}

class Lane {
  readonly tokens: Int32Array;
  length = 0;
  running = false;
  /** Requests of another namespace never reuse the lane's tokens. */
  namespace = "";
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

  namespace(lane: number): string {
    return this.#at(lane).namespace;
  }

  /** Every lane as `prompt` sees it. */
  views(namespace: string, prompt: Int32Array): LaneView[] {
    return this.#lanes.map((lane, index) => ({
      lane: index,
      state: lane.state,
      sharedTokens: lane.namespace === namespace ? commonPrefix(lane.tokens.subarray(0, lane.length), prompt) : 0,
      heldTokens: lane.length,
      lastUse: lane.lastUse,
    }));
  }

  /** Gives the lane to a request, cut to its first `keptTokens`. */
  take(lane: number, namespace: string, keptTokens: number): void {
    const entry = this.#at(lane);
    invariant(!entry.running, `lane ${lane} is already running`);
    invariant(keptTokens <= entry.length, `lane ${lane} holds ${entry.length} tokens, cannot keep ${keptTokens}`);
    invariant(keptTokens === 0 || entry.namespace === namespace, `lane ${lane} belongs to another namespace`);
    entry.running = true;
    entry.length = keptTokens;
    entry.namespace = namespace;
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
