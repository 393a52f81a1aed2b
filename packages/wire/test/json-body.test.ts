import { CodedError } from "@kvasir/kit";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { parseJsonBody } from "../src/json-body.ts";
import { findJsonFault } from "../src/json-fault.ts";

const bytesOf = (text: string) => new TextEncoder().encode(text);

function errorOf(bytes: Uint8Array): CodedError {
  try {
    parseJsonBody(bytes);
  } catch (error) {
    if (error instanceof CodedError) return error;
    throw error;
  }
  throw new Error("accepted");
}

describe("a JSON body", () => {
  it("is read as JSON.parse reads it", () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        expect(parseJsonBody(bytesOf(text))).toEqual(JSON.parse(text));
      }),
    );
  });

  it("finds a fault exactly where JSON.parse refuses, in any damaged text", () => {
    const damaged = fc.tuple(
      fc.json({ maxDepth: 3 }),
      fc.nat(),
      fc.constantFrom("", "{", "]", '"', ",", ":", "x", "\\", "-", "\u0001", "1"),
    );
    fc.assert(
      fc.property(damaged, ([text, at, insert]) => {
        const cut = at % (text.length + 1);
        const broken = text.slice(0, cut) + insert + text.slice(cut + (at % 2));
        let accepted = true;
        try {
          JSON.parse(broken);
        } catch {
          accepted = false;
        }
        expect(findJsonFault(broken) === null).toBe(accepted);
      }),
      { numRuns: 2000 },
    );
  });

  it.each([
    ['{"a": 1,}', 8, 1, 9],
    ['{\n  "a": tru\n}', 9, 2, 8],
    ['{"a": 01}', 7, 1, 8],
    ["[1 2]", 3, 1, 4],
    ['{"a": "line\nbreak"}', 11, 1, 12],
    ["hello", 0, 1, 1],
  ])("tells the position of the fault in %j", (text, offset, line, column) => {
    expect(findJsonFault(text)).toMatchObject({ offset, line, column });
    const error = errorOf(bytesOf(text));
    expect(error.code).toBe("invalid_json");
    expect(error.message).toContain(`position ${offset} (line ${line}, column ${column})`);
  });

  it("says that a body ends too early, and that it is empty", () => {
    expect(errorOf(bytesOf('{"messages": [')).message).toContain("ends too early");
    expect(errorOf(bytesOf("")).message).toContain("empty");
  });

  it("never quotes the body in the error", () => {
    expect(errorOf(bytesOf('{"prompt": "my secret text" oops}')).message).not.toContain("secret");
  });

  it("refuses bytes that are not UTF-8", () => {
    expect(errorOf(Uint8Array.of(0x7b, 0xff, 0x7d)).code).toBe("invalid_utf8");
    expect(errorOf(Uint8Array.of(0x22, 0xed, 0xa0, 0x80, 0x22)).code).toBe("invalid_utf8");
  });

  it("refuses half a surrogate pair and names the field", () => {
    const error = errorOf(bytesOf('{"messages":[{"content":"a\\ud83d"}]}'));
    expect(error).toMatchObject({ code: "invalid_utf8", param: "messages[0].content" });
    expect(errorOf(bytesOf('{"\\udc00":1}')).code).toBe("invalid_utf8");
    expect(parseJsonBody(bytesOf('"\\ud83d\\ude00"'))).toBe("😀");
  });

  it("survives nesting of any depth", () => {
    const deep = `${"[".repeat(100_000)}"\\ud83d"${"]".repeat(100_000)}`;
    expect(errorOf(bytesOf(deep)).code).toBe("invalid_utf8");
    expect(errorOf(bytesOf("[".repeat(100_000))).code).toBe("invalid_json");
  });
});
