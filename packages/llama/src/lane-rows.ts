/**
 * KV rows of single token ranges, out of a lane and into a lane: what the prefix store's pages are made of.
 *
 * Reading: the lane's tensors are learnt from a description of its export and then read directly, range by range. Position and
 * cell are the same number in a lane (it is filled in order and only ever cut at the end); the description proves it, and is
 * asked again after every cut.
 * Writing: libllama's own import places the cells and asks for the rows tensor by tensor; they are copied from the pages.
 * Windowed layers get all rows back, so such a lane can be cut anywhere afterwards, like one that computed them.
 */

import type { LanePiece, LaneRows, RowLayout } from "@kvasir/engine";
import { invariant } from "@kvasir/kit";
import koffi from "koffi";
import type { LlamaContext } from "./context.ts";
import type { Lanes } from "./lanes.ts";
import { type CacheShape, shapeOf } from "./state-shape.ts";
import type { StateStream } from "./state-stream.ts";
import type { Address } from "./structs.ts";

/** Copies one tensor's rows [row, row + count) of the lane that is written. */
type FillRows = (tensor: Address, tensorIndex: number, rowsBefore: number, row: number) => void;

/** Rows that pass through our own memory at a time when one lane is copied into another. */
const copiedRows = 256;

export class LlamaLaneRows implements LaneRows {
  readonly layout: RowLayout;
  readonly #context: LlamaContext;
  readonly #lanes: Lanes;
  readonly #stream: StateStream;
  readonly #caches: readonly CacheShape[];
  /** Proofs that cell and position are the same in a lane. A lane only grows at its end, so they hold until it is cut. */
  readonly #shapes = new Map<number, readonly CacheShape[]>();

  private constructor(context: LlamaContext, lanes: Lanes, stream: StateStream, caches: readonly CacheShape[]) {
    this.#context = context;
    this.#lanes = lanes;
    this.#stream = stream;
    this.#caches = caches;
    const rowBytes = caches.flatMap((cache) => cache.tensors.map((tensor) => tensor.rowBytes));
    this.layout = { rowBytes, bytesPerToken: rowBytes.reduce((total, bytes) => total + bytes, 0) };
  }

  /**
   * @param lane a lane that holds at least one token
   * @returns null when this model's memory is not a plain attention cache: recurrent layers, several positions a token
   */
  static of(context: LlamaContext, lanes: Lanes, stream: StateStream, lane: number): LlamaLaneRows | null {
    if (lanes.isRecurrent) return null;
    const caches = shapeOf(stream.describe(context.handle, lane));
    return caches === null ? null : new LlamaLaneRows(context, lanes, stream, caches);
  }

  read(lane: number, from: number, count: number, target: Uint8Array): void {
    invariant(
      from >= 0 && count > 0 && from + count <= this.#lanes.storedTokens(lane),
      `lane ${lane} holds ${this.#lanes.storedTokens(lane)} tokens, not ${from}..${from + count}`,
    );
    invariant(
      target.length === count * this.layout.bytesPerToken,
      `${count} tokens need ${count * this.layout.bytesPerToken} bytes, not ${target.length}`,
    );
    const { native } = this.#context.model.library;
    let address = koffi.address(target);
    for (const cache of this.#shapeOf(lane).caches) {
      for (const { tensor, rowBytes } of cache.tensors) {
        native.ggml_backend_tensor_get(tensor, address, from * rowBytes, count * rowBytes);
        address += BigInt(count * rowBytes);
      }
    }
  }

  write(lane: number, pieces: readonly LanePiece[]): void {
    invariant(
      this.#lanes.storedTokens(lane) === 0,
      `lane ${lane} holds ${this.#lanes.storedTokens(lane)} tokens and is not empty`,
    );
    const tokens = pieces.reduce((total, { count }) => total + count, 0);
    const fillers = pieces.map((piece) => ({ count: piece.count, fill: this.#fillFrom(piece) }));
    const script = this.#script(lane, tokens);
    let next = 0;
    let tensorIndex = 0;
    // Where each tensor's rows begin inside a page: the rows of all tensors before it.
    let rowsBefore = 0;
    this.#stream.replace(this.#context.handle, lane, {
      bytes: (target) => {
        target.set(script.subarray(next, next + target.length));
        next += target.length;
      },
      tensor: (tensor, offset, size) => {
        const rowBytes = this.layout.rowBytes[tensorIndex] ?? 0;
        invariant(
          offset === 0 && size === tokens * rowBytes,
          `the import of lane ${lane} asked for rows ${offset}+${size}, not 0+${tokens * rowBytes}`,
        );
        let row = 0;
        for (const { count, fill } of fillers) {
          fill(tensor, tensorIndex, rowsBefore, row);
          row += count;
        }
        rowsBefore += rowBytes;
        tensorIndex++;
      },
    });
    this.#shapes.delete(lane);
    this.#lanes.refresh(lane);
    invariant(
      next === script.length && this.#lanes.storedTokens(lane) === tokens,
      `lane ${lane} holds ${this.#lanes.storedTokens(lane)} tokens after ${tokens} were written`,
    );
  }

  /** To be told when a lane was cut or emptied: its cells must be proven again. */
  forget(lane: number): void {
    this.#shapes.delete(lane);
  }

  free(): void {
    this.#stream.free();
  }

  #fillFrom(piece: LanePiece): FillRows {
    const { native } = this.#context.model.library;
    if ("bytes" in piece) {
      const address = koffi.address(piece.bytes);
      return (tensor, tensorIndex, rowsBefore, row) => {
        const rowBytes = this.layout.rowBytes[tensorIndex] ?? 0;
        const source = address + BigInt(rowsBefore * piece.stride);
        native.ggml_backend_tensor_set(tensor, source, row * rowBytes, piece.count * rowBytes);
      };
    }
    const sources = this.#shapeOf(piece.lane).caches.flatMap(({ tensors }) => tensors);
    const buffer = new Uint8Array(copiedRows * Math.max(...this.layout.rowBytes));
    const address = koffi.address(buffer);
    return (tensor, tensorIndex, _rowsBefore, row) => {
      const source = sources[tensorIndex];
      invariant(source, `lane ${piece.lane} has no tensor ${tensorIndex}`);
      for (let from = 0; from < piece.count; from += copiedRows) {
        const size = Math.min(copiedRows, piece.count - from) * source.rowBytes;
        native.ggml_backend_tensor_get(source.tensor, address, from * source.rowBytes, size);
        native.ggml_backend_tensor_set(tensor, address, (row + from) * source.rowBytes, size);
      }
    };
  }

  #shapeOf(lane: number): { readonly caches: readonly CacheShape[] } {
    const known = this.#shapes.get(lane);
    if (known !== undefined) return { caches: known };
    const caches = shapeOf(this.#stream.describe(this.#context.handle, lane));
    const stored = this.#lanes.storedTokens(lane);
    invariant(caches !== null && caches.length === this.#caches.length, `lane ${lane} is not laid out as it was at the start`);
    for (const { first, cells } of caches) {
      invariant(first + cells === stored, `lane ${lane} holds ${stored} tokens, its cells end at ${first + cells}`);
    }
    this.#shapes.set(lane, caches);
    return { caches };
  }

  /** Every word that the import reads besides rows, in order. */
  #script(lane: number, tokens: number): Uint8Array {
    const parts: Uint8Array[] = [];
    const words = (...values: number[]) => parts.push(new Uint8Array(Int32Array.from(values).buffer));
    for (const { streams, layers, tensors } of this.#caches) {
      words(streams, tokens);
      const cells = new Int32Array(tokens * 3);
      for (let position = 0; position < tokens; position++) cells.set([position, 1, lane], position * 3);
      parts.push(new Uint8Array(cells.buffer));
      words(0, layers);
      for (const tensor of tensors) parts.push(tensor.words);
      // The import goes through the cell counts of all streams; the lane's own was the first.
      words(...Array.from({ length: streams - 1 }, () => 0));
    }
    return Buffer.concat(parts);
  }
}
