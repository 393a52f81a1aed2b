/**
 * Finds the first stop text in a stream of UTF-16 code units, one Knuth-Morris-Pratt automaton per stop. The decision depends
 * on the text alone, never on how it was cut into pieces.
 *
 * The stop that is complete first wins; of those complete at the same code unit, the longest. So generation ends at the very
 * unit that completes a stop, and what comes before it contains no stop.
 */

class StopAutomaton {
  readonly text: string;
  /** Code units of `text` that the stream ends with right now. */
  matched = 0;
  /** fallback[n]: longest proper prefix of text[0..n] that is also its suffix. */
  readonly #fallback: Uint32Array;

  constructor(text: string) {
    this.text = text;
    this.#fallback = new Uint32Array(text.length);
    for (let end = 1, length = 0; end < text.length; end++) {
      length = this.#extend(length, text.charCodeAt(end));
      this.#fallback[end] = length;
    }
  }

  /** Takes one code unit; true when it completes the stop. */
  accept(unit: number): boolean {
    this.matched = this.#extend(this.matched, unit);
    return this.matched === this.text.length;
  }

  #extend(matched: number, unit: number): number {
    let length = matched;
    while (length > 0 && this.text.charCodeAt(length) !== unit) length = this.#fallback[length - 1] ?? 0;
    return this.text.charCodeAt(length) === unit ? length + 1 : 0;
  }
}

export interface StopMatch {
  readonly stopText: string;
  /** Code units of the given piece up to and including the one that completed the stop. */
  readonly endUnits: number;
}

export class StopMatcher {
  readonly #automata: readonly StopAutomaton[];

  /** @param stops empty texts are ignored: they would end every generation before it began */
  constructor(stops: readonly string[]) {
    this.#automata = [...new Set(stops)].filter((stop) => stop.length > 0).map((stop) => new StopAutomaton(stop));
  }

  /** Reads `text` up to the first complete stop. After a match the matcher is spent. */
  accept(text: string): StopMatch | null {
    if (this.#automata.length === 0) return null;
    for (let index = 0; index < text.length; index++) {
      const unit = text.charCodeAt(index);
      let stopText: string | null = null;
      for (const automaton of this.#automata) {
        if (automaton.accept(unit) && automaton.text.length > (stopText?.length ?? 0)) stopText = automaton.text;
      }
      if (stopText !== null) return { stopText, endUnits: index + 1 };
    }
    return null;
  }

  /** Code units at the end of the stream that may be the beginning of a stop; less than the longest stop. */
  get heldUnits(): number {
    let longest = 0;
    for (const { matched } of this.#automata) longest = Math.max(longest, matched);
    return longest;
  }
}
