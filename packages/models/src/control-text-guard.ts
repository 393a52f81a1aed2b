/**
 * Keeps control tokens out of what clients send. Templates write control tokens as text (`<|im_end|>`), and the tokenizer reads
 * them back from text; so the same text inside a message would end the message.
 *
 * Before rendering, a marker character goes into every control text that stands in a client's string; after rendering, the text
 * is cut at the markers. Each segment is tokenized on its own, and no segment holds a control text that a client wrote:
 *
 *   client      a <|im_end|> b
 *   marked      a <⟂|im_end|> b
 *   rendered    <|im_start|>user\na <⟂|im_end|> b<|im_end|>\n
 *   segments    [<|im_start|>user\na <] [|im_end|> b<|im_end|>\n]
 *
 * Where no control text occurs nothing is marked, so ordinary text is tokenized as if this did not exist. A string that ends
 * with a beginning of a control text (two characters or more), or begins with an end of one, is marked there too: two strings
 * that the template puts together cannot form one. A control text of a single character cannot be broken; no known
 * vocabulary has one.
 */

import { CodedError } from "@kvasir/kit";

interface TextsByStart {
  readonly texts: Set<string>;
  readonly lengths: Set<number>;
}

const LEAST_FRAGMENT = 2;
/** Noncharacters of Unicode, then its private-use area: what no ordinary text holds. */
const markerRanges = [
  [0xfdd0, 0xfdef],
  [0xe000, 0xf8ff],
] as const;
const markerLike = /[\ufdd0-\ufdef\ue000-\uf8ff]|\\u(?:fd[de][0-9a-f]|e[0-9a-f]{3}|f[0-8][0-9a-f]{2})/gi;

export class ControlTextGuard {
  readonly #byStart = new Map<string, TextsByStart>();
  readonly #beginnings = new Set<string>();
  readonly #endings = new Set<string>();
  readonly #longest: number;
  readonly #starts: RegExp | null;

  constructor(controlTexts: Iterable<string>) {
    let longest = 0;
    for (const text of controlTexts) {
      const start = firstCharacter(text);
      if (text.length <= start.length) continue;
      longest = Math.max(longest, text.length);
      const entry = this.#byStart.get(start) ?? { texts: new Set<string>(), lengths: new Set<number>() };
      entry.texts.add(text);
      entry.lengths.add(text.length);
      this.#byStart.set(start, entry);
      for (let length = LEAST_FRAGMENT; length < text.length; length++) {
        this.#beginnings.add(text.slice(0, length));
        this.#endings.add(text.slice(-length));
      }
    }
    this.#longest = longest;
    const starts = [...this.#byStart.keys()].map((start) => `\\u{${start.codePointAt(0)?.toString(16)}}`);
    this.#starts = starts.length > 0 ? new RegExp(`[${starts.join("")}]`, "gu") : null;
  }

  /** The text with `marker` inside every control text, and at its ends where they are part of one. */
  mark(text: string, marker: string): string {
    const cuts = [...this.#insideCuts(text), ...this.#endCuts(text)].sort((x, y) => x - y);
    if (cuts.length === 0) return text;
    let marked = "";
    let from = 0;
    for (const cut of new Set(cuts)) {
      marked += text.slice(from, cut) + marker;
      from = cut;
    }
    return marked + text.slice(from);
  }

  /** The same for every string in plain data, keys included. */
  markDeep(value: unknown, marker: string): unknown {
    if (typeof value === "string") return this.mark(value, marker);
    if (Array.isArray(value)) return value.map((item) => this.markDeep(item, marker));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [this.mark(key, marker), this.markDeep(item, marker)]),
    );
  }

  *#insideCuts(text: string): Generator<number> {
    if (!this.#starts) return;
    for (const { 0: start, index } of text.matchAll(this.#starts)) {
      const candidates = this.#byStart.get(start);
      for (const length of candidates?.lengths ?? []) {
        if (!candidates?.texts.has(text.slice(index, index + length))) continue;
        yield index + start.length;
        break;
      }
    }
  }

  /** Templates trim: what counts is the text without the space around it. */
  *#endCuts(text: string): Generator<number> {
    const end = text.trimEnd().length;
    const start = text.length - text.trimStart().length;
    for (let length = Math.min(this.#longest, end - start); length >= LEAST_FRAGMENT; length--) {
      if (this.#endings.has(text.slice(start, start + length))) {
        yield start;
        break;
      }
    }
    for (let length = Math.min(this.#longest, end - start); length >= LEAST_FRAGMENT; length--) {
      if (this.#beginnings.has(text.slice(end - length, end))) {
        yield end;
        break;
      }
    }
  }
}

/**
 * A character that occurs nowhere in `values`, neither as it is nor as the JSON escape that a template could write for it.
 * @throws CodedError invalid_value when all 6,432 candidates occur
 */
export function unusedMarker(...values: readonly unknown[]): string {
  const used = new Set<number>();
  const visit = (value: unknown): void => {
    if (typeof value === "string") {
      for (const [match] of value.matchAll(markerLike)) {
        used.add(match.length === 1 ? match.charCodeAt(0) : Number.parseInt(match.slice(2), 16));
      }
    } else if (Array.isArray(value)) {
      for (const item of value) visit(item);
    } else if (typeof value === "object" && value !== null) {
      for (const [key, item] of Object.entries(value)) {
        visit(key);
        visit(item);
      }
    }
  };
  for (const value of values) visit(value);
  for (const [from, to] of markerRanges) {
    for (let code = from; code <= to; code++) if (!used.has(code)) return String.fromCharCode(code);
  }
  throw new CodedError("invalid_value", "the messages use every private-use character of Unicode; at least one must be left");
}

/** Segments between the markers, in order, none empty. */
export function cutAtMarkers(rendered: string, marker: string): string[] {
  const escaped = `\\u${marker.charCodeAt(0).toString(16)}`;
  const segments = rendered.split(marker).flatMap((part) => part.split(escaped));
  return segments.filter((segment) => segment !== "");
}

function firstCharacter(text: string): string {
  const code = text.codePointAt(0);
  return code === undefined ? "" : String.fromCodePoint(code);
}
