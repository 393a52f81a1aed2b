/**
 * What each lane holds, as libllama's memory says. Kept here so that questions cost nothing and can be asked while a decode
 * runs; read again after everything that changes a lane.
 *
 * A lane holds positions 0..stored-1. Layers with a sliding window may have lost those before `first` (that happens to states
 * that were exported and imported: libllama writes only what the window still sees).
 *
 *   whole lane                       [0 ........................ stored)
 *   windowed layers after an import              [first ......... stored)
 *   may be cut to `length` when      length ∈ {0, stored}, or not recurrent and
 *                                    (first = 0, or first < length - window)
 */

import { invariant } from "@kvasir/kit";
import type { LlamaContext } from "./context.ts";

export class Lanes {
  readonly #context: LlamaContext;
  readonly #stored: Int32Array;
  readonly #first: Int32Array;
  readonly #isRecurrent: boolean;
  readonly #windowTokens: number;
  /** Told of every lane that lost tokens. */
  onCut: (lane: number) => void = () => undefined;

  constructor(context: LlamaContext, laneCount: number) {
    this.#context = context;
    this.#stored = new Int32Array(laneCount);
    this.#first = new Int32Array(laneCount);
    this.#isRecurrent = context.model.isRecurrent;
    this.#windowTokens = context.model.windowTokens;
  }

  get count(): number {
    return this.#stored.length;
  }

  /** Whether an ended computation leaves a lane's recurrent state neither here nor there. */
  get isRecurrent(): boolean {
    return this.#isRecurrent;
  }

  storedTokens(lane: number): number {
    return this.#stored[this.#checked(lane)] as number;
  }

  canResume(lane: number, length: number): boolean {
    const stored = this.storedTokens(lane);
    if (length === 0 || length === stored) return true;
    if (length < 0 || length > stored || this.#isRecurrent) return false;
    const first = this.#first[lane] as number;
    return first === 0 || first < length - this.#windowTokens;
  }

  truncate(lane: number, length: number): void {
    invariant(this.canResume(lane, length), `lane ${lane} cannot be cut from ${this.storedTokens(lane)} to ${length} tokens`);
    if (length === this.storedTokens(lane)) return;
    this.onCut(lane);
    const { native } = this.#context.model.library;
    const removed = native.llama_memory_seq_rm(this.#context.memory, lane, length === 0 ? -1 : length, -1);
    this.refresh(lane);
    invariant(
      removed && this.storedTokens(lane) === length,
      `lane ${lane} holds ${this.storedTokens(lane)} tokens after it was cut to ${length}`,
    );
  }

  /** Reads a lane's range from libllama. */
  refresh(lane: number): void {
    const { native } = this.#context.model.library;
    this.#stored[this.#checked(lane)] = native.llama_memory_seq_pos_max(this.#context.memory, lane) + 1;
    this.#first[lane] = Math.max(0, native.llama_memory_seq_pos_min(this.#context.memory, lane));
  }

  #checked(lane: number): number {
    invariant(lane >= 0 && lane < this.#stored.length, `lane ${lane} is not one of ${this.#stored.length}`);
    return lane;
  }
}
