import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { SSE_DONE, SseDecoder, type SseItem, sseComment, sseData } from "../src/sse.ts";

function decodeInPieces(bytes: Uint8Array, cuts: readonly number[]): SseItem[] {
  const decoder = new SseDecoder();
  const items: SseItem[] = [];
  let start = 0;
  for (const end of [...cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b), bytes.length]) {
    items.push(...decoder.push(bytes.subarray(start, end)));
    start = end;
  }
  expect(decoder.isUnfinished).toBe(false);
  return items;
}

describe("server-sent events", () => {
  it("come back as they were sent, however the bytes were cut", () => {
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "binary" })), fc.array(fc.nat()), (values, cuts) => {
        const text = `${values.map((value) => sseData({ value })).join("")}${sseComment("ping")}${SSE_DONE}`;
        const items = decodeInPieces(new TextEncoder().encode(text), cuts);
        expect(items).toEqual([
          ...values.map((value) => ({ kind: "data", data: JSON.stringify({ value }) })),
          { kind: "comment", text: "ping" },
          { kind: "data", data: "[DONE]" },
        ]);
      }),
    );
  });

  it("knows every line end of the standard and joins data lines", () => {
    const bytes = new TextEncoder().encode("data: a\r\ndata: b\r\n\r\ndata:c\r\revent: x\ndata\n\n");
    expect(decodeInPieces(bytes, [8])).toEqual([
      { kind: "data", data: "a\nb" },
      { kind: "data", data: "c" },
      { kind: "data", data: "" },
    ]);
  });

  it("cannot be broken by a comment with line ends", () => {
    expect(sseComment("a\n\ndata: evil")).toBe(": a data: evil\n\n");
  });
});
