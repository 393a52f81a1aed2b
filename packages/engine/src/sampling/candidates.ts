/**
 * The tokens that one draw may choose from, in ascending token id, with logits relative to the row's largest (so ≤ 0). Filters
 * shrink the set in place. Owned by a `SamplingScratch`; every buffer is reused from token to token.
 *
 * Tokens more than `NEGLIGIBLE_NATS` below the largest never enter: together they hold less than 150,000 × e⁻³² ≈ 2·10⁻⁹ of
 * the probability.
 */

import { invariant, type Random } from "@kvasir/kit";
import { expOfNegative } from "./fast-exp.ts";
import type { TopTokens } from "./top-tokens.ts";

const NEGLIGIBLE_NATS = 32;
/** Histogram of keys: 32 buckets a nat, the last one open. */
const BUCKETS_PER_NAT = 32;
const BUCKETS = NEGLIGIBLE_NATS * BUCKETS_PER_NAT;
/** A sort key packs 31 bits of a non-negative float32 above 21 bits of slot: 52 bits, exact in a double. */
const SLOT_RANGE = 2 ** 21;

export class Candidates {
  #size = 0;
  /** Largest logit of the set. */
  #largest = 0;
  #ids = new Int32Array(0);
  #logits = new Float32Array(0);
  #weights = new Float32Array(0);
  /** What `#keepLightest` orders by: not negative, small is kept first. */
  #keys = new Float32Array(0);
  #keyBits = new Uint32Array(0);
  #packed = new Float64Array(0);
  readonly #bucketMass = new Float64Array(BUCKETS);

  get size(): number {
    return this.#size;
  }

  /** Remaining token ids: a view, valid until the next change. */
  get ids(): Int32Array {
    return this.#ids.subarray(0, this.#size);
  }

  /**
   * @param largest the row's largest logit
   * @param temperature flattens the distribution above 1, so that more of the tail can matter
   */
  loadAll(row: Float32Array, largest: number, temperature: number): void {
    this.#reserve(row.length);
    const ids = this.#ids;
    const logits = this.#logits;
    const least = leastLogit(temperature);
    let size = 0;
    for (let token = 0; token < row.length; token++) {
      const logit = relativeLogit(row[token] as number, largest);
      if (logit >= least) {
        ids[size] = token;
        logits[size] = logit;
        size++;
      }
    }
    this.#size = size;
    this.#largest = 0;
  }

  /** Like `loadAll` for the tokens that a partial selection of `row` kept, at least one. Sorts `top`'s ids. */
  loadTop(row: Float32Array, top: TopTokens, temperature: number): void {
    const kept = top.ids.sort();
    this.#reserve(kept.length);
    let largest = Number.NEGATIVE_INFINITY;
    for (const token of kept) largest = Math.max(largest, row[token] as number);
    const least = leastLogit(temperature);
    this.#size = 0;
    this.#largest = 0;
    for (const token of kept) {
      const logit = relativeLogit(row[token] as number, largest);
      if (logit < least) continue;
      this.#ids[this.#size] = token;
      this.#logits[this.#size] = logit;
      this.#size++;
    }
  }

  /**
   * Locally typical sampling (Meister et al. 2022, https://arxiv.org/abs/2202.00666): the smallest set, by distance of a token's
   * surprisal from the entropy, whose probability reaches `share`. |−ln p − H| equals |logit − Σ p·logit|.
   */
  keepTypical(share: number): void {
    const logits = this.#logits;
    const weights = this.#weights;
    const total = this.#weigh(1);
    let weightedLogits = 0;
    for (let slot = 0; slot < this.#size; slot++) weightedLogits += (weights[slot] as number) * (logits[slot] as number);
    const meanLogit = weightedLogits / total;
    for (let slot = 0; slot < this.#size; slot++) this.#keys[slot] = Math.abs((logits[slot] as number) - meanLogit);
    this.#keepLightest(share * total);
  }

  /** Nucleus sampling: the smallest set of most likely tokens whose probability reaches `share`. */
  keepNucleus(share: number): void {
    const total = this.#weigh(1);
    const keys = this.#keys;
    const logits = this.#logits;
    const largest = this.#largest;
    for (let slot = 0; slot < this.#size; slot++) keys[slot] = largest - (logits[slot] as number);
    this.#keepLightest(share * total);
  }

  /** Tokens at least `ratio` times as likely as the most likely one. */
  keepLikely(ratio: number): void {
    const least = this.#largest + Math.min(Math.log(ratio), 0);
    let kept = 0;
    for (let slot = 0; slot < this.#size; slot++) {
      if ((this.#logits[slot] as number) >= least) this.#move(slot, kept++);
    }
    this.#size = kept;
  }

  /** Draws one token from softmax(logit / temperature), temperature > 0. Takes exactly one random number. */
  draw(temperature: number, random: Random): number {
    let left = random.next() * this.#weigh(temperature);
    let last = -1;
    for (let slot = 0; slot < this.#size; slot++) {
      const weight = this.#weights[slot] as number;
      if (weight === 0) continue;
      last = slot;
      left -= weight;
      if (left < 0) break;
    }
    invariant(last >= 0, `no candidate of ${this.#size} has a positive weight`);
    return this.#ids[last] as number;
  }

  /** weights = exp((logit − largest) / temperature); returns their sum. */
  #weigh(temperature: number): number {
    const logits = this.#logits;
    const weights = this.#weights;
    const largest = this.#largest;
    let total = 0;
    for (let slot = 0; slot < this.#size; slot++) {
      const weight = expOfNegative(((logits[slot] as number) - largest) / temperature);
      weights[slot] = weight;
      total += weight;
    }
    return total;
  }

  /**
   * Keeps the candidates with the smallest keys (the lower id first among equals) until their weight reaches `wanted`; at least
   * one. A histogram finds the bucket where that happens; only what lies in it is sorted.
   */
  #keepLightest(wanted: number): void {
    const keys = this.#keys;
    const crossing = this.#crossingBucket(wanted);
    const lastSlot = this.#lastOfBucket(crossing.bucket, wanted - crossing.massBelow);
    const lastKey = keys[lastSlot] as number;
    const size = this.#size;
    let kept = 0;
    let largest = Number.NEGATIVE_INFINITY;
    for (let slot = 0; slot < size; slot++) {
      const key = keys[slot] as number;
      if (key > lastKey || (key === lastKey && slot > lastSlot)) continue;
      const logit = this.#logits[slot] as number;
      if (logit > largest) largest = logit;
      this.#move(slot, kept++);
    }
    this.#size = kept;
    this.#largest = largest;
  }

  /** The first bucket that is not empty and at whose end the weight reaches `wanted`, else the last that is not empty. */
  #crossingBucket(wanted: number): { bucket: number; massBelow: number } {
    const keys = this.#keys;
    const weights = this.#weights;
    const mass = this.#bucketMass.fill(0);
    const size = this.#size;
    let lastBucket = 0;
    for (let slot = 0; slot < size; slot++) {
      const bucket = bucketOf(keys[slot] as number);
      mass[bucket] = (mass[bucket] as number) + (weights[slot] as number);
      if (bucket > lastBucket) lastBucket = bucket;
    }
    let massBelow = 0;
    for (let bucket = 0; bucket < lastBucket; bucket++) {
      const bucketMass = mass[bucket] as number;
      if (bucketMass > 0 && massBelow + bucketMass >= wanted) return { bucket, massBelow };
      massBelow += bucketMass;
    }
    return { bucket: lastBucket, massBelow };
  }

  /** The slot in a bucket at which the bucket's weight, smallest key first, reaches `wanted`; else its last. */
  #lastOfBucket(bucket: number, wanted: number): number {
    const keys = this.#keys;
    const packed = this.#packed;
    const size = this.#size;
    let count = 0;
    for (let slot = 0; slot < size; slot++) {
      if (bucketOf(keys[slot] as number) === bucket) packed[count++] = (this.#keyBits[slot] as number) * SLOT_RANGE + slot;
    }
    let mass = 0;
    let slot = -1;
    for (const entry of packed.subarray(0, count).sort()) {
      slot = entry % SLOT_RANGE;
      mass += this.#weights[slot] as number;
      if (mass >= wanted) break;
    }
    invariant(slot >= 0, `bucket ${bucket} of ${this.#size} candidates is empty`);
    return slot;
  }

  #move(from: number, to: number): void {
    this.#ids[to] = this.#ids[from] as number;
    this.#logits[to] = this.#logits[from] as number;
  }

  #reserve(capacity: number): void {
    if (capacity <= this.#ids.length) return;
    invariant(capacity <= SLOT_RANGE, `a vocabulary of ${capacity} tokens exceeds ${SLOT_RANGE}`);
    this.#ids = new Int32Array(capacity);
    this.#logits = new Float32Array(capacity);
    this.#weights = new Float32Array(capacity);
    this.#keys = new Float32Array(capacity);
    this.#keyBits = new Uint32Array(this.#keys.buffer);
    this.#packed = new Float64Array(capacity);
  }
}

function leastLogit(temperature: number): number {
  return -NEGLIGIBLE_NATS * Math.max(temperature, 1);
}

/** Equals of a +Infinity logit share the probability; everything else is then impossible. */
function relativeLogit(logit: number, largest: number): number {
  return logit === largest ? 0 : logit - largest;
}

function bucketOf(key: number): number {
  return key < NEGLIGIBLE_NATS ? (key * BUCKETS_PER_NAT) | 0 : BUCKETS - 1;
}
