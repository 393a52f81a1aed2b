/**
 * Turns the token bytes of one request into text deltas. Owned by the request, called once per sampled token.
 *
 *   bytes → [unfinished UTF-8 character] → text → [possible beginning of a stop] → delta
 *            held until complete                   held until it fails, dropped when it completes
 *
 * The deltas add up to the text of all bytes decoded at once, cut before the first stop (see `StopMatcher` for which is
 * first), however the bytes were cut into pieces.
 */

import { StopMatcher } from "./stop-matcher.ts";

export interface TextDelta {
  /** May be empty. Never part of a stop, never half a character. */
  readonly text: string;
  /** The stop that has just been completed; the generation ends here. */
  readonly stopText: string | null;
}

export class TextAssembler {
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  readonly #matcher: StopMatcher;
  #held = "";
  #ended: string | null = null;

  constructor(stops: readonly string[]) {
    this.#matcher = new StopMatcher(stops);
  }

  /** Takes the bytes of one token. After a stop every further piece is dropped and the stop reported again. */
  push(piece: Uint8Array): TextDelta {
    if (this.#ended !== null) return { text: "", stopText: this.#ended };
    return this.#emit(this.#decoder.decode(piece, { stream: true }));
  }

  /** Ends the stream: what was held back, an unfinished character as U+FFFD. Empty after a stop. */
  finish(): string {
    if (this.#ended !== null) return "";
    const { text, stopText } = this.#emit(this.#decoder.decode());
    if (stopText !== null) return text;
    const rest = text + this.#held;
    this.#held = "";
    return rest;
  }

  #emit(decoded: string): TextDelta {
    const match = this.#matcher.accept(decoded);
    const pending = this.#held + decoded;
    if (match) {
      const { stopText, endUnits } = match;
      this.#ended = stopText;
      const end = this.#held.length + endUnits - stopText.length;
      this.#held = "";
      return { text: pending.slice(0, end), stopText };
    }
    const readyUnits = pending.length - this.#matcher.heldUnits;
    this.#held = pending.slice(readyUnits);
    return { text: pending.slice(0, readyUnits), stopText: null };
  }
}
