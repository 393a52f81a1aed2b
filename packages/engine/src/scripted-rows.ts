/** KV rows of a `ScriptedBackend`: a token and the hash of everything up to it, so that rows of another prefix always show. */

import { invariant } from "@kvasir/kit";
import type { LanePiece, LaneRows, RowLayout } from "./store/page.ts";

/** What a scripted lane holds; hashes[n] is the hash of the first n tokens. */
export interface ScriptedLane {
  readonly tokens: number[];
  readonly hashes: number[];
}

const ROW_BYTES = 8;

export class ScriptedRows implements LaneRows {
  readonly layout: RowLayout = { rowBytes: [4, 4], bytesPerToken: ROW_BYTES };
  readonly #laneAt: (lane: number) => ScriptedLane;

  constructor(laneAt: (lane: number) => ScriptedLane) {
    this.#laneAt = laneAt;
  }

  read(lane: number, from: number, count: number, target: Uint8Array): void {
    const { tokens, hashes } = this.#laneAt(lane);
    invariant(from + count <= tokens.length, `lane ${lane} holds ${tokens.length} tokens, not ${from}..${from + count}`);
    invariant(target.length === count * ROW_BYTES, `${count} rows need ${count * ROW_BYTES} bytes, not ${target.length}`);
    const view = new DataView(target.buffer, target.byteOffset, target.byteLength);
    for (let i = 0; i < count; i++) {
      view.setInt32(i * 4, tokens[from + i] ?? 0, true);
      view.setUint32((count + i) * 4, hashes[from + i + 1] ?? 0, true);
    }
  }

  write(lane: number, pieces: readonly LanePiece[]): void {
    const target = this.#laneAt(lane);
    invariant(target.tokens.length === 0, `lane ${lane} is not empty`);
    for (const piece of pieces) {
      if ("lane" in piece) {
        const source = this.#laneAt(piece.lane);
        target.tokens.push(...source.tokens.slice(0, piece.count));
        target.hashes.push(...source.hashes.slice(1, piece.count + 1));
        continue;
      }
      const view = new DataView(piece.bytes.buffer, piece.bytes.byteOffset, piece.bytes.byteLength);
      for (let i = 0; i < piece.count; i++) {
        target.tokens.push(view.getInt32(i * 4, true));
        target.hashes.push(view.getUint32((piece.stride + i) * 4, true));
      }
    }
  }
}
