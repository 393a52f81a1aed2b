/**
 * The rows of a decode call in C memory, where another thread can read them while JavaScript runs on. One batch, refilled for
 * every call; never touched while a call reads it (the backend allows one call at a time).
 */

import type { Batch } from "@kvasir/engine";
import { NativeMemory } from "./native-memory.ts";
import type { BatchStruct } from "./structs.ts";

export class BatchMemory {
  readonly #memory: NativeMemory;
  readonly #tokens: Int32Array;
  readonly #positions: Int32Array;
  readonly #lanes: Int32Array;
  readonly #wantsLogits: Uint8Array;
  readonly #struct: BatchStruct;

  /** @param capacity most rows */
  constructor(capacity: number) {
    // sections by alignment: one 8-byte pointer, four 4-byte integers and one byte a row
    const at = { pointers: 0, tokens: 8, positions: 12, lanes: 16, counts: 20, wants: 24 };
    this.#memory = new NativeMemory(capacity * 25);
    const { buffer, address } = this.#memory;
    this.#tokens = new Int32Array(buffer, capacity * at.tokens, capacity);
    this.#positions = new Int32Array(buffer, capacity * at.positions, capacity);
    this.#lanes = new Int32Array(buffer, capacity * at.lanes, capacity);
    this.#wantsLogits = new Uint8Array(buffer, capacity * at.wants, capacity);
    const addressAt = (section: number) => address + BigInt(capacity * section);
    // a row belongs to one lane: its pointer leads to its own element of `lanes`, for good
    const pointers = new BigUint64Array(buffer, 0, capacity);
    for (let row = 0; row < capacity; row++) pointers[row] = addressAt(at.lanes) + BigInt(row * 4);
    new Int32Array(buffer, capacity * at.counts, capacity).fill(1);
    this.#struct = {
      n_tokens: 0,
      token: addressAt(at.tokens),
      embd: null,
      pos: addressAt(at.positions),
      n_seq_id: addressAt(at.counts),
      seq_id: addressAt(at.pointers),
      logits: addressAt(at.wants),
    };
  }

  /**
   * Copies the rows and returns the argument for `llama_decode`.
   * @param order the batch row that goes to each place; null keeps the batch's order
   */
  fill(batch: Batch, order: Int32Array | null): BatchStruct {
    const { rows } = batch;
    if (order === null) {
      this.#tokens.set(batch.tokens.subarray(0, rows));
      this.#positions.set(batch.positions.subarray(0, rows));
      this.#lanes.set(batch.lanes.subarray(0, rows));
      this.#wantsLogits.set(batch.wantsLogits.subarray(0, rows));
    } else {
      for (let place = 0; place < rows; place++) {
        const row = order[place] as number;
        this.#tokens[place] = batch.tokens[row] as number;
        this.#positions[place] = batch.positions[row] as number;
        this.#lanes[place] = batch.lanes[row] as number;
        this.#wantsLogits[place] = batch.wantsLogits[row] as number;
      }
    }
    this.#struct.n_tokens = rows;
    return this.#struct;
  }

  free(): void {
    this.#memory.free();
  }
}
