/**
 * A lane's state in host memory, for the prefix store: export, import, copy. The engine will adopt `LaneStateBackend`.
 *
 * Traps that are closed here: libllama's own copy between streams is done at the next decode, so an export or import before
 * that would work on old cells, and a partial one ends the process; a copy is therefore an export and an import. An import that
 * fails leaves an empty lane, never a part. Windowed layers are exported without the cells that the window has left behind:
 * such a lane cannot be cut back far afterwards, and `canResume` knows it.
 */

import { CodedError, invariant } from "@kvasir/kit";
import koffi from "koffi";
import type { LlamaContext } from "./context.ts";
import type { Lanes } from "./lanes.ts";
import { callAsync } from "./native-functions.ts";
import { constants } from "./structs.ts";

export interface LaneState {
  /** Opaque to all but `lane-state-layout.ts`. Valid for the model, KV types and lane count that wrote it. */
  readonly bytes: Uint8Array;
  /** Tokens that the lane held. */
  readonly tokens: number;
  /** Gives the memory back at once. `bytes` is empty afterwards. */
  release(): void;
}

/** What a backend offers beyond `Backend` so that sequences can leave and enter lanes. Under the same rule: one call at a time. */
export interface LaneStateBackend {
  /** Bytes that an export of the lane takes now. */
  laneStateBytes(lane: number): number;
  /** Copies the lane's state out. The lane is unchanged. */
  exportLane(lane: number): Promise<LaneState>;
  /**
   * Replaces the lane's content. `bytes` must stay unchanged until the promise resolves.
   * @param tokens what the state holds; the lane is empty when the state says otherwise
   * @throws CodedError decode_failed when the state does not fit this model or configuration; the lane is empty then
   */
  importLane(lane: number, bytes: Uint8Array, tokens: number): Promise<void>;
  /** Makes `to` hold what `from` holds. */
  copyLane(from: number, to: number): Promise<void>;
}

const flags = constants.LLAMA_STATE_SEQ_FLAGS_NONE;
/** Some 0.5 ms of copying: below, another thread would cost more than it frees. */
const synchronousBytes = 4 * 1024 * 1024;

export class LaneStates {
  readonly #context: LlamaContext;
  readonly #lanes: Lanes;

  constructor(context: LlamaContext, lanes: Lanes) {
    this.#context = context;
    this.#lanes = lanes;
  }

  bytesOf(lane: number): number {
    invariant(lane >= 0 && lane < this.#lanes.count, `lane ${lane} is not one of ${this.#lanes.count}`);
    return Number(this.#native.llama_state_seq_get_size_ext(this.#context.handle, lane, flags));
  }

  async export(lane: number): Promise<LaneState> {
    // always outside the JavaScript heap, so it does not move while another thread writes it
    let memory = new ArrayBuffer(this.bytesOf(lane));
    const bytes = new Uint8Array(memory);
    const call = this.#native.llama_state_seq_get_data_ext;
    const written =
      bytes.byteLength <= synchronousBytes
        ? call(this.#context.handle, bytes, bytes.byteLength, lane, flags)
        : await callAsync(call, this.#context.handle, koffi.address(bytes), bytes.byteLength, lane, flags);
    invariant(
      Number(written) === bytes.byteLength,
      `lane ${lane} gave ${written} bytes of state after it promised ${bytes.byteLength}`,
    );
    const release = () => {
      memory = memory.transfer(0);
    };
    return { bytes, tokens: this.#lanes.storedTokens(lane), release };
  }

  async import(lane: number, bytes: Uint8Array, tokens: number): Promise<void> {
    const { log } = this.#context.model.library;
    this.#lanes.truncate(lane, 0);
    const mark = log.mark();
    const call = this.#native.llama_state_seq_set_data_ext;
    const read =
      bytes.byteLength <= synchronousBytes
        ? call(this.#context.handle, bytes, bytes.byteLength, lane, flags)
        : await callAsync(call, this.#context.handle, koffi.address(bytes), bytes.byteLength, lane, flags);
    this.#lanes.refresh(lane);
    const stored = this.#lanes.storedTokens(lane);
    if (Number(read) === bytes.byteLength && stored === tokens) return;
    this.#lanes.truncate(lane, 0);
    throw new CodedError(
      "decode_failed",
      `the state of ${bytes.byteLength} bytes for ${tokens} tokens does not fit lane ${lane}: ${log.reasonSince(mark) || `${read} bytes gave ${stored} tokens`}. Compute the prompt again.`,
    );
  }

  async copy(from: number, to: number): Promise<void> {
    invariant(from !== to, `lane ${from} cannot be copied to itself`);
    const state = await this.export(from);
    try {
      await this.import(to, state.bytes, state.tokens);
    } finally {
      state.release();
    }
  }

  get #native() {
    return this.#context.model.library.native;
  }
}
