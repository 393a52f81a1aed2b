/**
 * The bytes of an exported lane (`llama_state_seq_get_data_ext`, flags 0, release v0.5.0): little-endian, no padding.
 *
 *   u32 magic, i32 source lane, then one or more attention caches, then at most one recurrent part
 *   cache      u32 streams; per stream u32 cells and, when there are any: meta of each cell, u32 transposed (0 with flash
 *              attention), u32 layers, K of each layer, V of each layer (none in MLA models)
 *   meta       i32 position, u32 lanes (1), [i32 x, i32 y, i32 token: only with several positions a token], i32 lane
 *   K, V       i32 ggml type, u64 bytes a row, one row a cell
 *   recurrent  u32 cells, per cell i32 position and u32 0; u32 0, u32 layers, R rows, S rows as K and V above, each only for the
 *              layers that are recurrent
 *
 * Source: llama_kv_cache::state_write and llama_memory_recurrent::state_write. The layout is internal to the library, so
 * whatever does not parse to the last byte is opaque: null.
 */

export interface LaneStateLayout {
  readonly caches: readonly CacheLayout[];
  /** Bytes of recurrent state; 0 for attention alone. */
  readonly recurrentBytes: number;
}

export interface CacheLayout {
  readonly cells: number;
  /** Positions in the order of the cells. */
  readonly positions: Int32Array;
  /** K of all layers, then V. `offset` is the first cell's row. */
  readonly rows: ReadonlyArray<{ readonly offset: number; readonly rowBytes: number }>;
}

interface Parsed<Part> {
  readonly part: Part;
  readonly end: number;
}

const headBytes = 8;
const extraBytes = 12;
const mostStreams = 256;

export function readLaneStateLayout(bytes: Uint8Array): LaneStateLayout | null {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return parseFrom(view, headBytes, []);
}

/** Bytes that one token takes in the caches. */
export function bytesPerToken(layout: LaneStateLayout): number {
  return layout.caches.reduce((sum, cache) => sum + cache.rows.reduce((rows, row) => rows + row.rowBytes, 0), 0);
}

function parseFrom(view: DataView, offset: number, caches: readonly CacheLayout[]): LaneStateLayout | null {
  if (offset === view.byteLength) return caches.length > 0 ? { caches, recurrentBytes: 0 } : null;
  for (const hasExtra of [false, true]) {
    for (const hasValues of [true, false]) {
      const cache = parseCache(view, offset, hasExtra, hasValues);
      const rest = cache && parseFrom(view, cache.end, [...caches, cache.part]);
      if (rest) return rest;
    }
  }
  const recurrent = parseRecurrent(view, offset);
  return recurrent?.end === view.byteLength ? { caches, recurrentBytes: recurrent.part } : null;
}

function parseCache(view: DataView, start: number, hasExtra: boolean, hasValues: boolean): Parsed<CacheLayout> | null {
  const streams = uint32(view, start);
  if (streams === null || streams === 0 || streams > mostStreams) return null;
  let offset = start + 4;
  let cache: CacheLayout = { cells: 0, positions: new Int32Array(0), rows: [] };
  for (let stream = 0; stream < streams; stream++) {
    const cells = uint32(view, offset);
    if (cells === null) return null;
    offset += 4;
    if (cells === 0) continue;
    if (cache.cells > 0) return null; // one lane lies in one stream
    const parsed = parseCells(view, offset, cells, hasExtra, hasValues);
    if (parsed === null) return null;
    cache = parsed.part;
    offset = parsed.end;
  }
  return { part: cache, end: offset };
}

function parseCells(
  view: DataView,
  start: number,
  cells: number,
  hasExtra: boolean,
  hasValues: boolean,
): Parsed<CacheLayout> | null {
  const metaBytes = 12 + (hasExtra ? extraBytes : 0);
  let offset = start + cells * metaBytes;
  if (offset + 8 > view.byteLength) return null;
  const positions = new Int32Array(cells);
  for (let cell = 0; cell < cells; cell++) {
    positions[cell] = view.getInt32(start + cell * metaBytes, true);
    if (view.getUint32(start + cell * metaBytes + 4, true) !== 1) return null;
  }
  const [transposed, layers] = [view.getUint32(offset, true), view.getUint32(offset + 4, true)];
  if (transposed !== 0) return null;
  offset += 8;
  const rows: Array<{ offset: number; rowBytes: number }> = [];
  for (let part = 0; part < layers * (hasValues ? 2 : 1); part++) {
    const parsed = parseRows(view, offset, cells);
    if (parsed === null) return null;
    rows.push(parsed.part);
    offset = parsed.end;
  }
  return { part: { cells, positions, rows }, end: offset };
}

function parseRows(view: DataView, start: number, cells: number): Parsed<{ offset: number; rowBytes: number }> | null {
  if (start + 12 > view.byteLength) return null;
  const rowBytes = Number(view.getBigUint64(start + 4, true));
  const end = start + 12 + cells * rowBytes;
  return rowBytes === 0 || end > view.byteLength ? null : { part: { offset: start + 12, rowBytes }, end };
}

/** Returns the bytes of all rows. How many layers are recurrent is not written: rows go on to the end. */
function parseRecurrent(view: DataView, start: number): Parsed<number> | null {
  const cells = uint32(view, start);
  if (cells === null || cells !== 1) return null;
  let offset = start + 4 + 8 + 8;
  let bytes = 0;
  while (offset < view.byteLength) {
    const rows = parseRows(view, offset, cells);
    if (rows === null) return null;
    bytes += rows.part.rowBytes;
    offset = rows.end;
  }
  return { part: bytes, end: offset };
}

function uint32(view: DataView, offset: number): number | null {
  return offset + 4 <= view.byteLength ? view.getUint32(offset, true) : null;
}
