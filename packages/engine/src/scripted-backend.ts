/**
 * A Backend without a model. Logits are a pure function of the tokens that a lane holds, every earlier token included, so wrong
 * lane contents always show; time comes from a cost model on the caller's clock, failures from a script. It checks the port's
 * contract strictly: a caller's mistake is an `InvariantError` and leaves every lane as it was.
 *
 * A lane is the list of its tokens with the running hash of each prefix. `decode` reads the batch before it returns, as long as
 * it answers at once; a batch that takes a promise must not change until the promise resolves.
 */

import { CodedError, invariant, type ManualClock } from "@kvasir/kit";
import type { Backend, BackendFacts, DecodeOutcome } from "./backend.ts";
import type { Batch } from "./batch.ts";
import { hashPrefix, noiseOf } from "./scripted-noise.ts";
import { type ScriptedLane, ScriptedRows } from "./scripted-rows.ts";

/** What goes wrong in a decode call: nothing stored; half of the rows stored; nothing stored and no error. */
export type ScriptedFault = "refused" | "device-lost" | "no-room";

export interface ScriptedCost {
  readonly clock: ManualClock;
  /** Milliseconds of one decode call, whatever it holds. */
  readonly perCallMs: number;
  readonly perRowMs: number;
  /** Milliseconds per row and token of depth before it: attention. */
  readonly perDepthMs?: number;
}

export interface ScriptedBackendOptions {
  readonly laneCount?: number;
  readonly laneTokens?: number;
  readonly batchTokens?: number;
  readonly outputRows?: number;
  /** Text bytes by token id. Default: 256 single bytes and one empty piece, the end token 256. */
  readonly pieces?: readonly Uint8Array[];
  /** Default: the last token. They are very unlikely unless `nextToken` names one. */
  readonly endTokens?: readonly number[];
  /** Changes every logit. */
  readonly seed?: number;
  /** Makes one token by far the most likely after `tokens` (the lane's content); null leaves it to the noise. */
  readonly nextToken?: (tokens: readonly number[]) => number | null;
  /** Where a lane can be cut: anywhere, or only at 0 and at its own length (recurrent memory). */
  readonly resume?: "any" | "frontier";
  /** Calls with at least this many rows return a promise. Default: all when `cost` is given, else none. */
  readonly asyncFromRows?: number;
  /** Rows between two chances to abort a call that returned a promise. */
  readonly microbatchRows?: number;
  readonly cost?: ScriptedCost;
  /** Asked at every decode with the number of the call, 1 for the first. */
  readonly faultAt?: (call: number, batch: Batch) => ScriptedFault | null;
  /** Told of every decode before it runs; reads the batch, keeps nothing of it. */
  readonly onDecode?: (batch: Batch, call: number) => void;
}

/** Above every noise logit, so that a named token wins, also under a mild penalty. */
const NAMED_LOGIT = 24;
/** Below every noise logit. */
const END_LOGIT = -24;

export class ScriptedBackend implements Backend {
  readonly facts: BackendFacts;
  /** The lanes' rows, for a prefix store. */
  readonly rows = new ScriptedRows((lane) => this.#lane(lane));
  readonly #options: ScriptedBackendOptions;
  readonly #pieces: readonly Uint8Array[];
  readonly #lanes: readonly ScriptedLane[];
  readonly #outputs: readonly Float32Array[];
  /** Batch row → index into #outputs, for the last batch. */
  readonly #outputOfRow = new Map<number, number>();
  #calls = 0;
  #decoding = false;
  #aborting = false;
  #closed = false;

  constructor(options: ScriptedBackendOptions = {}) {
    this.#options = options;
    this.#pieces = options.pieces ?? [...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)), new Uint8Array(0)];
    const laneCount = options.laneCount ?? 4;
    const laneTokens = options.laneTokens ?? 256;
    this.facts = {
      description: "scripted backend",
      vocabSize: this.#pieces.length,
      laneCount,
      laneTokens,
      batchTokens: options.batchTokens ?? 64,
      outputRows: options.outputRows ?? laneCount,
      kvBytesPerToken: 0,
      kvBytes: 0,
      pageRefusal: null,
      canRollBack: options.resume !== "frontier",
      threads: 1,
      endTokens: options.endTokens ?? [this.#pieces.length - 1],
    };
    const seedHash = hashPrefix(0, options.seed ?? 0);
    this.#lanes = Array.from({ length: laneCount }, () => ({ tokens: [], hashes: [seedHash] }));
    this.#outputs = Array.from({ length: this.facts.outputRows }, () => new Float32Array(this.facts.vocabSize));
  }

  /** Decode calls so far. */
  get calls(): number {
    return this.#calls;
  }

  get closed(): boolean {
    return this.#closed;
  }

  pieceOf(token: number): Uint8Array {
    const piece = this.#pieces[token];
    invariant(piece, `token ${token} is outside the vocabulary of ${this.#pieces.length}`);
    return piece;
  }

  decode(batch: Batch): DecodeOutcome | Promise<DecodeOutcome> {
    invariant(!this.#closed, "decode on a closed backend");
    invariant(!this.#decoding, "decode while another decode runs");
    this.#checkRows(batch);
    const call = ++this.#calls;
    this.#options.onDecode?.(batch, call);
    const fault = this.#options.faultAt?.(call, batch) ?? null;
    if (fault === "refused") throw new CodedError("decode_failed", `Decode call ${call} was refused: the script says so.`);
    if (fault === "no-room" || this.#overflows(batch)) return "no-room";
    // Old views must not look valid.
    this.#outputOfRow.clear();
    for (const output of this.#outputs) output.fill(Number.NaN);
    this.#decoding = true;
    this.#aborting = false;
    const { asyncFromRows = this.#options.cost ? 0 : Number.POSITIVE_INFINITY } = this.#options;
    if (batch.rows >= asyncFromRows) return this.#decodeSlowly(batch, call, fault);
    try {
      return this.#decodeRows(batch, 0, batch.rows, call, fault);
    } finally {
      this.#decoding = false;
    }
  }

  logitsOf(row: number): Float32Array {
    invariant(!this.#decoding, "logits are not there while a decode runs");
    const index = this.#outputOfRow.get(row);
    const logits = index === undefined ? undefined : this.#outputs[index];
    invariant(logits, `row ${row} of the last batch did not ask for logits`);
    return logits;
  }

  storedTokens(lane: number): number {
    return this.#lane(lane).tokens.length;
  }

  canResume(lane: number, length: number): boolean {
    const stored = this.storedTokens(lane);
    if (length < 0 || length > stored) return false;
    return this.#options.resume !== "frontier" || length === 0 || length === stored;
  }

  truncate(lane: number, length: number): void {
    invariant(!this.#decoding, "truncate while a decode runs");
    invariant(this.canResume(lane, length), `lane ${lane} with ${this.storedTokens(lane)} tokens cannot resume at ${length}`);
    const { tokens, hashes } = this.#lane(lane);
    tokens.length = length;
    hashes.length = length + 1;
  }

  abort(): void {
    this.#aborting = this.#decoding;
  }

  async close(): Promise<void> {
    invariant(!this.#decoding, "close while a decode runs");
    this.#closed = true;
  }

  async #decodeSlowly(batch: Batch, call: number, fault: ScriptedFault | null): Promise<DecodeOutcome> {
    const { microbatchRows = batch.rows } = this.#options;
    try {
      for (let start = 0; start < batch.rows; start += microbatchRows) {
        // Other work of the event loop, an abort among it, comes in here.
        await new Promise<void>((resolve) => setImmediate(resolve));
        if (this.#aborting) return "aborted";
        this.#decodeRows(batch, start, Math.min(start + microbatchRows, batch.rows), call, fault);
      }
      return "done";
    } finally {
      this.#decoding = false;
    }
  }

  #decodeRows(batch: Batch, start: number, end: number, call: number, fault: ScriptedFault | null): DecodeOutcome {
    const stop = fault === "device-lost" ? start + ((end - start) >> 1) : end;
    for (let row = start; row < stop; row++) {
      const { tokens, hashes } = this.#lane(batch.lanes[row] as number);
      const token = batch.tokens[row] as number;
      hashes.push(hashPrefix(hashes.at(-1) as number, token));
      tokens.push(token);
      if (batch.wantsLogits[row]) this.#writeLogits(row, tokens, hashes.at(-1) as number);
    }
    this.#charge(batch, start, end);
    if (fault === "device-lost")
      throw new CodedError("decode_failed", `Decode call ${call} lost its device: the script says so.`);
    return "done";
  }

  #writeLogits(row: number, tokens: readonly number[], hash: number): void {
    const index = this.#outputOfRow.size;
    const output = this.#outputs[index];
    invariant(output, `more than ${this.#outputs.length} rows ask for logits`);
    for (let token = 0; token < output.length; token++) output[token] = noiseOf(hash, token);
    for (const token of this.facts.endTokens) output[token] = END_LOGIT;
    const named = this.#options.nextToken?.(tokens) ?? null;
    if (named !== null) output[named] = NAMED_LOGIT;
    this.#outputOfRow.set(row, index);
  }

  #charge(batch: Batch, start: number, end: number): void {
    const { cost } = this.#options;
    if (!cost) return;
    let milliseconds = start === 0 ? cost.perCallMs : 0;
    for (let row = start; row < end; row++) {
      milliseconds += cost.perRowMs + (cost.perDepthMs ?? 0) * (batch.positions[row] as number);
    }
    cost.clock.advance(milliseconds);
  }

  #overflows(batch: Batch): boolean {
    return batch.positions.subarray(0, batch.rows).some((position) => position >= this.facts.laneTokens);
  }

  #checkRows(batch: Batch): void {
    const { batchTokens, outputRows, vocabSize } = this.facts;
    invariant(batch.rows > 0, "a batch needs at least one row");
    invariant(batch.rows <= batchTokens, `a batch of ${batch.rows} rows exceeds ${batchTokens}`);
    invariant(batch.outputs <= outputRows, `${batch.outputs} rows ask for logits, at most ${outputRows} may`);
    const seen = new Set<number>();
    let lane = -1;
    let position = 0;
    for (let row = 0; row < batch.rows; row++) {
      const rowLane = batch.lanes[row] as number;
      const token = batch.tokens[row] as number;
      if (rowLane !== lane) {
        invariant(!seen.has(rowLane), `rows of lane ${rowLane} are not contiguous (row ${row})`);
        seen.add(rowLane);
        lane = rowLane;
        position = this.storedTokens(rowLane);
      }
      invariant(
        batch.positions[row] === position,
        `row ${row}: position ${batch.positions[row]} in lane ${lane}, expected ${position}`,
      );
      invariant(token >= 0 && token < vocabSize, `row ${row}: token ${token} is outside the vocabulary of ${vocabSize}`);
      position++;
    }
  }

  #lane(lane: number): ScriptedLane {
    const entry = this.#lanes[lane];
    invariant(entry, `lane ${lane} does not exist (0..${this.#lanes.length - 1})`);
    return entry;
  }
}
