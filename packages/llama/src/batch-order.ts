/**
 * Checks a batch against the lanes and brings its rows into the order that libllama computes best.
 *
 * With separate streams libllama puts only lanes of rising, adjacent numbers into one pass over the weights. Rows in rising lane
 * order therefore cost one pass for lanes 0,1,2 and two for lanes 0,2: which lanes run together is the engine's choice.
 */

import type { BackendFacts, Batch } from "@kvasir/engine";
import { CodedError, invariant } from "@kvasir/kit";

/** What the order needs to know of the lanes. */
interface StoredTokens {
  storedTokens(lane: number): number;
}

export class BatchOrder {
  readonly #facts: BackendFacts;
  readonly #rowAtPlace: Int32Array;
  readonly #placeOfRow: Int32Array;
  /** Rows of each lane in the batch. */
  readonly #rowsOfLane: Int32Array;
  #isIdentity = true;
  #rows = 0;
  readonly #lanesInBatch: number[] = [];

  constructor(facts: BackendFacts) {
    this.#facts = facts;
    this.#rowAtPlace = new Int32Array(facts.batchTokens);
    this.#placeOfRow = new Int32Array(facts.batchTokens);
    this.#rowsOfLane = new Int32Array(facts.laneCount);
  }

  /** The batch row that goes to each place, or null when rows stay where they are. */
  get places(): Int32Array | null {
    return this.#isIdentity ? null : this.#rowAtPlace;
  }

  /** Lanes of the batch, rising. */
  get lanes(): readonly number[] {
    return this.#lanesInBatch;
  }

  placeOf(row: number): number {
    invariant(row >= 0 && row < this.#rows, `row ${row} is not one of the ${this.#rows} of the last batch`);
    return this.#isIdentity ? row : (this.#placeOfRow[row] as number);
  }

  /**
   * @returns "no-room" when a lane would grow beyond its room; nothing is changed then
   * @throws CodedError decode_failed with the row, the value and the rule
   */
  arrange(batch: Batch, lanes: StoredTokens): "fits" | "no-room" {
    const { batchTokens, outputRows, laneTokens } = this.#facts;
    if (batch.rows === 0 || batch.rows > batchTokens)
      throw refused(`it has ${batch.rows} rows; 1 to ${batchTokens} are possible`);
    if (batch.outputs > outputRows) throw refused(`${batch.outputs} rows ask for logits; at most ${outputRows} may`);
    this.#forget();
    let [previousLane, isRising, fits] = [-1, true, true];
    for (let row = 0; row < batch.rows; row++) {
      const lane = this.#checkedLane(batch, row, lanes, previousLane);
      if (lane < previousLane) isRising = false;
      if ((batch.positions[row] as number) >= laneTokens) fits = false;
      previousLane = lane;
    }
    if (!fits) {
      this.#forget();
      return "no-room";
    }
    this.#rows = batch.rows;
    this.#isIdentity = isRising;
    if (!isRising) this.#sort(batch);
    return "fits";
  }

  /** After a decode: every lane holds what it held and its rows. */
  checkStored(batch: Batch, lanes: StoredTokens): void {
    for (let row = 0; row < batch.rows; row++) {
      const lane = batch.lanes[row] as number;
      if (row + 1 < batch.rows && batch.lanes[row + 1] === lane) continue;
      const expected = (batch.positions[row] as number) + 1;
      invariant(
        lanes.storedTokens(lane) === expected,
        `lane ${lane} holds ${lanes.storedTokens(lane)} tokens after a decode up to ${expected}`,
      );
    }
  }

  #checkedLane(batch: Batch, row: number, lanes: StoredTokens, previousLane: number): number {
    const { laneCount, vocabSize } = this.#facts;
    const lane = batch.lanes[row] as number;
    const token = batch.tokens[row] as number;
    if (lane < 0 || lane >= laneCount) throw refused(`row ${row} is for lane ${lane}; there are ${laneCount}`);
    if (token < 0 || token >= vocabSize) throw refused(`row ${row} has token ${token}; the vocabulary has ${vocabSize}`);
    const rowsBefore = this.#rowsOfLane[lane] as number;
    if (rowsBefore === 0) this.#lanesInBatch.push(lane);
    else if (lane !== previousLane) throw refused(`row ${row} comes back to lane ${lane}; rows of a lane must be together`);
    const position = lanes.storedTokens(lane) + rowsBefore;
    if (batch.positions[row] !== position) {
      throw refused(`row ${row} has position ${batch.positions[row]} in lane ${lane}; ${position} is next`);
    }
    this.#rowsOfLane[lane] = rowsBefore + 1;
    return lane;
  }

  #sort(batch: Batch): void {
    this.#lanesInBatch.sort((one, other) => one - other);
    const firstRow = new Map<number, number>();
    for (let row = 0; row < batch.rows; row++) {
      const lane = batch.lanes[row] as number;
      if (!firstRow.has(lane)) firstRow.set(lane, row);
    }
    let place = 0;
    for (const lane of this.#lanesInBatch) {
      const first = firstRow.get(lane) as number;
      for (let offset = 0; offset < (this.#rowsOfLane[lane] as number); offset++) {
        this.#rowAtPlace[place] = first + offset;
        this.#placeOfRow[first + offset] = place++;
      }
    }
  }

  #forget(): void {
    for (const lane of this.#lanesInBatch) this.#rowsOfLane[lane] = 0;
    this.#lanesInBatch.length = 0;
    this.#rows = 0;
  }
}

function refused(why: string): CodedError {
  return new CodedError("decode_failed", `a batch was refused: ${why}.`);
}
