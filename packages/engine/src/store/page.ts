/**
 * Pages: up to 64 consecutive tokens of KV, the unit in which a prefix is kept, shared and evicted.
 *
 *   sequence  [0 .. 64) [64 .. 128) ... [64·k .. 64·k + n)      1 ≤ n ≤ 64; only the last page of a sequence is shorter
 *   page data  tensor 0: n rows | tensor 1: n rows | …            rows in position order, one tensor per layer and side
 */

/** Tokens of a full page. */
export const PAGE_TOKENS = 64;

/** How KV rows of one token are laid out in a backend: bytes a row, one entry per tensor (each layer's K, then each layer's V). */
export interface RowLayout {
  readonly rowBytes: readonly number[];
  /** Sum of `rowBytes`. */
  readonly bytesPerToken: number;
}

/**
 * Copies rows out of a lane and into a lane. Implemented beside a `Backend`; the step loop calls it between two decodes.
 * A page's bytes are meaningful only for the backend that wrote them: the store's fingerprint keeps them apart.
 */
export interface LaneRows {
  readonly layout: RowLayout;

  /** Copies tokens [from, from + count) of a lane into `target`, tensor by tensor. `target` holds count × bytesPerToken bytes. */
  read(lane: number, from: number, count: number, target: Uint8Array): void;

  /**
   * Fills an empty lane with `pieces` in order. Afterwards the lane stores as many tokens as the pieces have, and continues
   * exactly like a lane that computed them.
   */
  write(lane: number, pieces: readonly LanePiece[]): void;
}

/** Where rows come from: the first `count` tokens of a page that has `stride` tokens, or of another lane. */
export type LanePiece =
  | { readonly bytes: Uint8Array; readonly stride: number; readonly count: number }
  | { readonly lane: number; readonly count: number };
