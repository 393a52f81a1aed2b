/**
 * What is on the device: lanes, the tokens in them, and which of these a new request need not compute. Owned by the engine's
 * step loop; the only caller of the backend's `truncate`. The prefix store will stand behind `place`: lanes first, then pages.
 */

import { type Clock, invariant } from "@kvasir/kit";
import type { Backend } from "./backend.ts";
import { LaneTable } from "./lane-table.ts";
import type { EngineRequest, LaneState, ResetReason } from "./request.ts";

export interface Placement {
  readonly lane: number;
  /** Leading prompt tokens that the lane holds already. */
  readonly cachedTokens: number;
  readonly restoreMs: number;
  readonly resetReason: ResetReason;
  /** For "rewritten": the first prompt token that differs from what the lane held. */
  readonly divergedAt: number | null;
}

export class LaneMemory {
  readonly #backend: Backend;
  readonly #clock: Clock;
  readonly #lanes: LaneTable;

  constructor(backend: Backend, clock: Clock) {
    this.#backend = backend;
    this.#clock = clock;
    this.#lanes = new LaneTable(backend.facts.laneCount, backend.facts.laneTokens);
  }

  get hasFreeLane(): boolean {
    return this.#lanes.hasFreeLane;
  }

  snapshot(): ReadonlyArray<{ readonly state: LaneState; readonly tokens: number }> {
    return this.#lanes.snapshot();
  }

  /** Gives the best free lane to a request and cuts it to what the prompt shares with it. There must be a free one. */
  place(request: EngineRequest): Placement {
    const startMs = this.#clock.monotonicMs();
    const prompt = request.promptTokens;
    const choice = this.#lanes.choose(prompt);
    invariant(choice, "a free lane was promised");
    const { lane, sharedTokens, heldTokens } = choice;
    // The last prompt token is computed again even when the lane has it: its logits give the first output token.
    const wanted = request.maxTokens > 0 ? Math.min(sharedTokens, prompt.length - 1) : sharedTokens;
    const cachedTokens = this.#backend.canResume(lane, wanted) ? wanted : 0;
    const reset = this.#explain(cachedTokens, sharedTokens, heldTokens, prompt);
    this.#backend.truncate(lane, cachedTokens);
    this.#lanes.take(lane, cachedTokens);
    return { lane, cachedTokens, restoreMs: this.#clock.monotonicMs() - startMs, ...reset };
  }

  /** Records tokens that the backend has stored in a running lane. */
  append(lane: number, tokens: Int32Array): void {
    this.#lanes.append(lane, tokens);
  }

  /** Takes back the last tokens of a running lane, in table and backend. */
  cut(lane: number, length: number): void {
    this.#backend.truncate(lane, length);
    this.#lanes.cut(lane, length);
  }

  /** Empties a running lane whose contents can't be trusted. */
  wipe(lane: number): void {
    this.cut(lane, 0);
  }

  /** Gives a lane back; its tokens stay for the session's next turn. */
  release(lane: number): void {
    this.#lanes.release(lane);
  }

  /** Compares the lanes with the backend and with their owners. @throws InvariantError naming the lane that differs */
  checkIntegrity(owned: readonly number[]): void {
    for (let lane = 0; lane < this.#lanes.laneCount; lane++) {
      const stored = this.#backend.storedTokens(lane);
      invariant(
        stored === this.#lanes.length(lane),
        `lane ${lane}: ${this.#lanes.length(lane)} tokens in the table, ${stored} in the backend`,
      );
    }
    invariant(new Set(owned).size === owned.length, `a lane has two owners: ${owned.join(", ")}`);
    const running = this.#lanes.snapshot().filter((lane) => lane.state === "running").length;
    invariant(running === owned.length, `${running} lanes are running for ${owned.length} requests`);
  }

  /** Why tokens are computed again that were computed before. */
  #explain(
    cached: number,
    shared: number,
    held: number,
    prompt: Int32Array,
  ): { resetReason: ResetReason; divergedAt: number | null } {
    const elsewhere = this.#lanes.longestShared(prompt);
    // The best lane is busy, or its memory cannot go back to that point.
    if (elsewhere * 2 >= prompt.length && cached * 2 < elsewhere) return { resetReason: "capacity", divergedAt: null };
    const continues = shared > 0 && shared * 2 >= held;
    if (!continues) return { resetReason: "cold", divergedAt: null };
    return shared < held && shared < prompt.length
      ? { resetReason: "rewritten", divergedAt: shared }
      : { resetReason: "none", divergedAt: null };
  }
}
