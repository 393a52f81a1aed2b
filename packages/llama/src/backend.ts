/**
 * The real backend: owns the model, one context, its compute threads and the batch memory.
 *
 * The engine's step loop calls it, one call at a time; only `abort`, `storedTokens`, `canResume` and `facts` may be used while a
 * decode runs. Whatever would make libllama end the process (ids, rows, positions out of range) is refused before the call.
 */

import type { Backend, BackendFacts, Batch, DecodeOutcome, LaneRows } from "@kvasir/engine";
import { CodedError, invariant } from "@kvasir/kit";
import koffi from "koffi";
import { AbortFlag } from "./abort-flag.ts";
import { BatchMemory } from "./batch-memory.ts";
import { BatchOrder } from "./batch-order.ts";
import type { LlamaContext } from "./context.ts";
import { type LaneState, type LaneStateBackend, LaneStates } from "./lane-state.ts";
import { LlamaLaneRows } from "./lane-rows.ts";
import { Lanes } from "./lanes.ts";
import type { LogMark } from "./library-log.ts";
import { callAsync } from "./native-functions.ts";
import { fillLane, rowsFault } from "./rows-self-test.ts";
import type { Address } from "./structs.ts";
import type { Vocabulary } from "./vocabulary.ts";

export interface BackendParts {
  readonly context: LlamaContext;
  readonly vocabulary: Vocabulary;
  readonly facts: BackendFacts;
  /** Most rows of a decode that is not worth another thread. */
  readonly synchronousRows: number;
  /** Whether a decode call returns before the device is done. */
  readonly waitsForDevice: boolean;
  readonly stopListening: () => void;
}

export class LlamaBackend implements Backend, LaneStateBackend {
  readonly facts: BackendFacts;
  readonly #context: LlamaContext;
  readonly #vocabulary: Vocabulary;
  readonly #lanes: Lanes;
  readonly #states: LaneStates;
  readonly #memory: BatchMemory;
  readonly #order: BatchOrder;
  readonly #abortFlag: AbortFlag;
  readonly #synchronousRows: number;
  readonly #waitsForDevice: boolean;
  readonly #stopListening: () => void;
  readonly #logitsViews = new Map<Address, Float32Array>();
  #logitsValid = false;
  #running: Promise<unknown> | null = null;
  #closed = false;

  #rows: LlamaLaneRows | null = null;

  /** Takes the context and its model over and closes them with itself. */
  constructor(parts: BackendParts) {
    const { context, vocabulary, facts } = parts;
    const { library } = context.model;
    this.facts = facts;
    this.#context = context;
    this.#vocabulary = vocabulary;
    this.#lanes = new Lanes(context, facts.laneCount);
    this.#states = new LaneStates(context, this.#lanes);
    this.#memory = new BatchMemory(facts.batchTokens);
    this.#order = new BatchOrder(facts);
    this.#synchronousRows = parts.synchronousRows;
    this.#waitsForDevice = parts.waitsForDevice;
    this.#stopListening = parts.stopListening;
    this.#abortFlag = new AbortFlag(library.native, library.isEmptyAddress);
    // recurrent state that was being rewritten is lost, with all the lane's tokens: there a chunk runs to its end
    if (!this.#lanes.isRecurrent) {
      library.native.llama_set_abort_callback(context.handle, this.#abortFlag.callback, this.#abortFlag.data);
    }
  }

  /** The library file that computes here. */
  get libraryFile(): string {
    return this.#context.model.library.location.llama;
  }

  pieceOf(token: number): Uint8Array {
    return this.#vocabulary.pieceOf(token, false);
  }

  decode(batch: Batch): DecodeOutcome | Promise<DecodeOutcome> {
    this.#assertIdle();
    if (this.#order.arrange(batch, this.#lanes) === "no-room") return "no-room";
    const { native, log } = this.#context.model.library;
    const { handle } = this.#context;
    const struct = this.#memory.fill(batch, this.#order.places);
    const mark = log.mark();
    this.#logitsValid = false;
    this.#abortFlag.lower();
    if (batch.rows <= this.#synchronousRows) {
      const code = native.llama_decode(handle, struct);
      if (this.#waitsForDevice) native.llama_synchronize(handle);
      return this.#settle(code, batch, mark);
    }
    return this.#exclusively(async () => {
      const code = await callAsync(native.llama_decode, handle, struct);
      if (this.#waitsForDevice) await callAsync(native.llama_synchronize, handle);
      return this.#settle(code, batch, mark);
    });
  }

  logitsOf(row: number): Float32Array {
    this.#assertIdle();
    invariant(this.#logitsValid, "there are no logits: no decode has succeeded since the last one that did not");
    const address = this.#context.model.library.native.llama_get_logits_ith(this.#context.handle, this.#order.placeOf(row));
    invariant(address !== null, `row ${row} of the last batch did not ask for logits`);
    let view = this.#logitsViews.get(address);
    if (view === undefined) {
      // the output buffer moves only when it grows; making a view anew each time costs more than the call
      view = new Float32Array(koffi.view(address, this.facts.vocabSize * Float32Array.BYTES_PER_ELEMENT));
      this.#logitsViews.set(address, view);
    }
    return view;
  }

  storedTokens(lane: number): number {
    return this.#lanes.storedTokens(lane);
  }

  canResume(lane: number, length: number): boolean {
    return this.#lanes.canResume(lane, length);
  }

  truncate(lane: number, length: number): void {
    this.#assertIdle();
    this.#lanes.truncate(lane, length);
  }

  /** Ends a decode on the CPU at its next graph node. Kernels of a GPU and recurrent models run to the end of the chunk. */
  abort(): void {
    if (this.#running !== null) this.#abortFlag.raise();
  }

  /**
   * Rows of single token ranges, for a prefix store. To be asked once, while every lane is empty.
   * @returns the rows, or why this model's memory is not cut into pages
   */
  async openRows(): Promise<{ readonly rows: LaneRows } | { readonly refusal: string }> {
    if (this.#lanes.isRecurrent) return { refusal: "recurrent layers can only go on where they stopped" };
    const stream = this.#context.model.library.stateStream();
    if (stream === null) return { refusal: "this build of libllama does not export the functions that pages need" };
    await fillLane(this);
    const rows = LlamaLaneRows.of(this.#context, this.#lanes, stream, 0);
    const refusal = rows === null ? "its exported state is not laid out as known" : await rowsFault(this, rows);
    this.truncate(0, 0);
    if (rows === null || refusal !== null) {
      stream.free();
      return { refusal: refusal ?? "" };
    }
    this.#rows = rows;
    this.#lanes.onCut = (lane) => rows.forget(lane);
    return { rows };
  }

  laneStateBytes(lane: number): number {
    this.#assertIdle();
    return this.#states.bytesOf(lane);
  }

  exportLane(lane: number): Promise<LaneState> {
    return this.#exclusively(() => this.#states.export(lane));
  }

  importLane(lane: number, bytes: Uint8Array, tokens: number): Promise<void> {
    return this.#exclusively(() => this.#states.import(lane, bytes, tokens));
  }

  copyLane(from: number, to: number): Promise<void> {
    return this.#exclusively(() => this.#states.copy(from, to));
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.abort();
    await this.#running?.catch(() => undefined); // its caller has the error
    this.#logitsViews.clear();
    this.#rows?.free();
    this.#context.close();
    this.#abortFlag.free();
    this.#memory.free();
    this.#context.model.close();
    this.#stopListening();
  }

  /** What a return code means, and what the lanes hold now. */
  #settle(code: number, batch: Batch, mark: LogMark): DecodeOutcome {
    const stopped = code === 2 || code < -1;
    for (const lane of this.#order.lanes) {
      // recurrent state was being rewritten when the call failed: libllama still shows it at the new position, computed or not
      if (stopped && this.#lanes.isRecurrent) this.#wipe(lane);
      else this.#lanes.refresh(lane);
    }
    switch (code) {
      case 0:
        this.#order.checkStored(batch, this.#lanes);
        this.#logitsValid = true;
        return "done";
      case 1:
        return "no-room";
      case 2:
        return "aborted";
      default: {
        const reason = this.#context.model.library.log.reasonSince(mark) || "libllama gives no reason";
        throw new CodedError("decode_failed", `a decode of ${batch.rows} rows failed with ${code}: ${reason}.`);
      }
    }
  }

  #wipe(lane: number): void {
    const { native } = this.#context.model.library;
    const removed = native.llama_memory_seq_rm(this.#context.memory, lane, -1, -1);
    this.#lanes.refresh(lane);
    invariant(removed && this.#lanes.storedTokens(lane) === 0, `lane ${lane} is not empty after it was wiped`);
  }

  #exclusively<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#assertIdle();
    const running = work().finally(() => {
      this.#running = null;
    });
    this.#running = running;
    return running;
  }

  #assertIdle(): void {
    invariant(!this.#closed, "backend used after it was closed");
    invariant(this.#running === null, "backend called while another call runs");
  }
}
