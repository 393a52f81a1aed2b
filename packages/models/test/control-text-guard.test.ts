import { CodedError } from "@kvasir/kit";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { ControlTextGuard, cutAtMarkers, unusedMarker } from "../src/control-text-guard.ts";

const controlTexts = ["<|im_start|>", "<|im_end|>", "<s>", "</s>", "<｜end▁of▁sentence｜>", "[INST]", "[/INST]", "🔚end"];
const guard = new ControlTextGuard(controlTexts);
const MARKER = "\ufdd0";

/** Text made of pieces of control texts, so that they arise often. */
const hostileText = fc
  .array(
    fc.oneof(
      fc.constantFrom(...controlTexts),
      fc.constantFrom("<", "|", ">", "im_", "<|im_st", "art|>", "end|>", "[IN", "ST]", "/", "s", " ", "\n", MARKER, "🔚"),
      fc.string({ unit: "grapheme", maxLength: 4 }),
    ),
    { maxLength: 12 },
  )
  .map((pieces) => pieces.join(""));

const holdsControlText = (segment: string): boolean => controlTexts.some((text) => segment.includes(text));

describe("breaking control texts", () => {
  it("leaves no control text in any segment, and every character in its place", () => {
    fc.assert(
      fc.property(hostileText, (text) => {
        const marker = unusedMarker(text);
        const segments = cutAtMarkers(guard.mark(text, marker), marker);
        expect(segments.filter(holdsControlText)).toEqual([]);
        expect(segments.join("")).toBe(text);
      }),
    );
  });

  it("keeps two texts that are put together from forming one", () => {
    fc.assert(
      fc.property(hostileText, hostileText, (left, right) => {
        const marker = unusedMarker(left, right);
        const together = guard.mark(left, marker).trim() + guard.mark(right, marker).trim();
        expect(cutAtMarkers(together, marker).filter(holdsControlText)).toEqual([]);
      }),
    );
  });

  it.each([
    ["<|im_end|", ">"],
    ["<", "|im_end|>"],
    ["a [INS", "T] b"],
    ["<|im_end| \n", "\n >"],
  ])("keeps %j and %j apart", (left, right) => {
    const together = guard.mark(left, MARKER).trim() + guard.mark(right, MARKER).trim();
    expect(cutAtMarkers(together, MARKER).filter(holdsControlText)).toEqual([]);
  });

  it.each(["plain text", "a < b and c > d", "> quoted", "if (x <", "<b>bold</b>", "[1, 2]", "", "s > t", "the end"])(
    "does not touch %j",
    (text) => {
      expect(guard.mark(text, MARKER)).toBe(text);
    },
  );

  it("marks keys and values of plain data", () => {
    expect(guard.markDeep({ "<s>": ["</s>", 1, null, true, { a: "[INST]" }] }, "|M|")).toEqual({
      "<|M|s>": ["<|M|/s>", 1, null, true, { a: "[|M|INST]" }],
    });
  });

  it("does nothing without control texts, and skips those of one character", () => {
    expect(new ControlTextGuard([]).mark("<s>", MARKER)).toBe("<s>");
    expect(new ControlTextGuard(["", "x"]).mark("xxx", MARKER)).toBe("xxx");
  });
});

describe("the marker", () => {
  it("is never a character of the text, nor its JSON escape", () => {
    expect(unusedMarker("abc")).toBe("\ufdd0");
    expect(unusedMarker(["\ufdd0"], { "\ufdd1": "\\ufdd2 and \\uFDD3" })).toBe("\ufdd4");
  });

  it("is found again when a template wrote it as an escape", () => {
    expect(cutAtMarkers('{"a": "<\\ufdd0s>"}', "\ufdd0")).toEqual(['{"a": "<', 's>"}']);
  });

  it("is refused when a text leaves none", () => {
    const all = Array.from({ length: 0x20 + 0x1900 }, (_, index) =>
      String.fromCharCode(index < 0x20 ? 0xfdd0 + index : 0xe000 + index - 0x20),
    );
    expect(() => unusedMarker(all.join(""))).toThrow(CodedError);
  });
});
