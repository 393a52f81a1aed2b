import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { TextAssembler } from "../src/index.ts";

interface Assembled {
  text: string;
  stopText: string | null;
  deltas: string[];
}

function assemble(pieces: readonly Uint8Array[], stops: readonly string[] = []): Assembled {
  const assembler = new TextAssembler(stops);
  const deltas: string[] = [];
  let stopText: string | null = null;
  for (const piece of pieces) {
    const delta = assembler.push(piece);
    deltas.push(delta.text);
    stopText = delta.stopText;
    if (stopText !== null) break;
  }
  deltas.push(assembler.finish());
  return { text: deltas.join(""), stopText, deltas };
}

const encode = (text: string): Uint8Array => new TextEncoder().encode(text);
const decodeWhole = (bytes: Uint8Array): string => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);

function cut(bytes: Uint8Array, lengths: readonly number[]): Uint8Array[] {
  const pieces: Uint8Array[] = [];
  let start = 0;
  for (const length of lengths) {
    pieces.push(bytes.subarray(start, start + length));
    start += length;
  }
  pieces.push(bytes.subarray(start));
  return pieces;
}

/** Text before the stop that is complete first, the longest of those that are complete at the same place. */
function referenceCut(text: string, stops: readonly string[]): { text: string; stopText: string | null } {
  for (let end = 1; end <= text.length; end++) {
    const complete = stops
      .filter((stop) => stop !== "" && text.slice(0, end).endsWith(stop))
      .sort((left, right) => right.length - left.length)[0];
    if (complete !== undefined) return { text: text.slice(0, end - complete.length), stopText: complete };
  }
  return { text, stopText: null };
}

/** Bytes that often form, break or cut off UTF-8 characters. */
const roughBytes = fc
  .array(
    fc.oneof(
      fc.integer({ min: 0, max: 255 }).map((byte) => [byte]),
      fc.constantFrom("é", "€", "𝄞", "\u{feff}", "a", "日本").map((text) => [...encode(text)]),
      fc.constantFrom(
        [0xe2, 0x82],
        [0xf0, 0x9d, 0x84],
        [0xc3],
        [0xed, 0xa0, 0x80],
        [0xf4, 0x90, 0x80, 0x80],
        [0xc0, 0xaf],
        [0x80],
      ),
    ),
    { maxLength: 12 },
  )
  .map((groups) => Uint8Array.from(groups.flat()));
const lengths = fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 30 });

describe("text of token bytes", () => {
  test("is the text of all bytes decoded at once, however they are cut", () => {
    fc.assert(
      fc.property(roughBytes, lengths, (bytes, cuts) => {
        expect(assemble(cut(bytes, cuts)).text).toBe(decodeWhole(bytes));
      }),
      { numRuns: 1000 },
    );
  });

  test("never sends half a character", () => {
    const { deltas } = assemble([...encode("a€𝄞é")].map((byte) => Uint8Array.of(byte)));
    expect(deltas.filter((delta) => delta !== "")).toEqual(["a", "€", "𝄞", "é"]);
  });

  test("an unfinished character at the end becomes U+FFFD, not before", () => {
    const assembler = new TextAssembler([]);
    expect(assembler.push(Uint8Array.of(0x61, 0xf0, 0x9d))).toEqual({ text: "a", stopText: null });
    expect(assembler.push(new Uint8Array(0))).toEqual({ text: "", stopText: null });
    expect(assembler.finish()).toBe("\ufffd");
  });

  test("a byte order mark is text like any other", () => {
    expect(assemble([encode("\u{feff}a")]).text).toBe("\u{feff}a");
  });
});

describe("stop texts", () => {
  test("cut where a search in the whole text cuts, whatever the pieces and the set of stops", () => {
    const letters = fc.string({ unit: fc.constantFrom("a", "b", "€", "𝄞"), maxLength: 24 });
    const stops = fc.array(fc.string({ unit: fc.constantFrom("a", "b", "€", "𝄞"), maxLength: 5 }), { maxLength: 4 });
    fc.assert(
      fc.property(letters, stops, lengths, (text, stopTexts, cuts) => {
        const assembled = assemble(cut(encode(text), cuts), stopTexts);
        expect({ text: assembled.text, stopText: assembled.stopText }).toEqual(referenceCut(text, stopTexts));
      }),
      { numRuns: 2000 },
    );
  });

  test("hold back only what may become a stop", () => {
    const longest = 5;
    fc.assert(
      fc.property(
        fc.string({ unit: fc.constantFrom("a", "b"), maxLength: 30 }),
        fc.array(fc.string({ unit: fc.constantFrom("a", "b"), minLength: 1, maxLength: longest })),
        (text, stops) => {
          const assembler = new TextAssembler(stops);
          let sent = "";
          for (const [index, letter] of text.split("").entries()) {
            const delta = assembler.push(encode(letter));
            sent += delta.text;
            if (delta.stopText !== null) return;
            const held = text.slice(sent.length, index + 1);
            expect(held.length).toBeLessThan(longest);
            expect(held === "" || stops.some((stop) => stop.startsWith(held))).toBe(true);
          }
        },
      ),
    );
  });

  test("a possible stop is released as soon as it fails", () => {
    const assembler = new TextAssembler(["</end>"]);
    expect(assembler.push(encode("x</en")).text).toBe("x");
    expect(assembler.push(encode("c")).text).toBe("</enc");
  });

  test("a possible stop at the end is text", () => {
    const assembler = new TextAssembler(["</end>"]);
    assembler.push(encode("x</en"));
    expect(assembler.finish()).toBe("</en");
  });

  test("match across tokens and inside a character's bytes", () => {
    const bytes = encode("ab€cd");
    expect(assemble(cut(bytes, [1, 2, 1, 1]), ["b€c"])).toMatchObject({ text: "a", stopText: "b€c" });
  });

  test("the stop that is complete first wins, the longer when both are complete at once", () => {
    expect(assemble([encode("xabcd")], ["abcd", "bc"])).toMatchObject({ text: "xa", stopText: "bc" });
    expect(assemble([encode("xabc")], ["c", "abc"])).toMatchObject({ text: "x", stopText: "abc" });
  });

  test("nothing follows a stop", () => {
    const assembler = new TextAssembler(["b"]);
    expect(assembler.push(encode("abc"))).toEqual({ text: "a", stopText: "b" });
    expect(assembler.push(encode("d"))).toEqual({ text: "", stopText: "b" });
    expect(assembler.finish()).toBe("");
  });

  test("an empty stop text is no stop", () => {
    expect(assemble([encode("ab")], [""])).toMatchObject({ text: "ab", stopText: null });
  });
});
