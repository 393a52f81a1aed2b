/** Seeded randomness: the same seed gives the same sequence on every machine (integer arithmetic only). */

export interface Random {
  /** Uniform in [0, 1) with 32 random bits. */
  next(): number;
}

/** sfc32 (Chris Doty-Humphrey's small fast chaotic generator), seeded from a 53-bit integer. */
export class SeededRandom implements Random {
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;

  /** @param seed any safe integer, negative too */
  constructor(seed: number) {
    const unsigned = Math.abs(Math.trunc(seed));
    this.#a = unsigned >>> 0;
    this.#b = Math.floor(unsigned / 2 ** 32) >>> 0;
    this.#c = seed < 0 ? 0x9e3779b9 : 0x243f6a88;
    for (let warmUp = 0; warmUp < 16; warmUp++) this.nextUint32();
  }

  nextUint32(): number {
    const sum = (this.#a + this.#b + this.#counter) >>> 0;
    this.#counter = (this.#counter + 1) >>> 0;
    this.#a = (this.#b ^ (this.#b >>> 9)) >>> 0;
    this.#b = (this.#c + (this.#c << 3)) >>> 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + sum) >>> 0;
    return sum;
  }

  next(): number {
    return this.nextUint32() / 2 ** 32;
  }

  /** Uniform integer in [0, bound). */
  below(bound: number): number {
    return Math.floor(this.next() * bound);
  }
}
