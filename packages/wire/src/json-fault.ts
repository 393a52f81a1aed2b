/**
 * Where a text stops being JSON (RFC 8259). Only asked after `JSON.parse` has refused it: V8 tells no position for most
 * faults, and its message quotes the text.
 */

export interface JsonFault {
  /** UTF-16 units from the start; the text's length when it ends too early. */
  readonly offset: number;
  /** From 1. */
  readonly line: number;
  readonly column: number;
  readonly atEnd: boolean;
}

type Expected = "value" | "value-or-end" | "key" | "key-or-end" | "colon" | "comma-or-end" | "nothing";

const LITERALS = ["true", "false", "null"];
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;

/** @returns null when the text is JSON after all */
export function findJsonFault(text: string): JsonFault | null {
  const offset = faultOffset(text);
  if (offset === null) return null;
  const before = text.slice(0, offset);
  const lineStart = before.lastIndexOf("\n") + 1;
  const line = before.split("\n").length;
  return { offset, line, column: offset - lineStart + 1, atEnd: offset >= text.length };
}

function faultOffset(text: string): number | null {
  const closers: string[] = [];
  let expected: Expected = "value";
  let at = skipSpace(text, 0);
  for (; at < text.length; at = skipSpace(text, at)) {
    const unit = text.charAt(at);
    const afterItem: Expected = closers.length === 0 ? "nothing" : "comma-or-end";
    if (expected.endsWith("-or-end") && unit === closers.at(-1)) {
      closers.pop();
      expected = closers.length === 0 ? "nothing" : "comma-or-end";
      at++;
    } else if (expected === "comma-or-end" && unit === ",") {
      expected = closers.at(-1) === "}" ? "key" : "value";
      at++;
    } else if (expected === "colon" && unit === ":") {
      expected = "value";
      at++;
    } else if ((expected === "key" || expected === "key-or-end") && unit === '"') {
      const string = scanString(text, at);
      if (string.fault) return string.end;
      at = string.end;
      expected = "colon";
    } else if (expected === "value" || expected === "value-or-end") {
      if (unit === "{" || unit === "[") {
        closers.push(unit === "{" ? "}" : "]");
        expected = unit === "{" ? "key-or-end" : "value-or-end";
        at++;
        continue;
      }
      const scalar = scanScalar(text, at);
      if (scalar.fault) return scalar.end;
      at = scalar.end;
      expected = afterItem;
    } else {
      return at;
    }
  }
  return expected === "nothing" ? null : text.length;
}

interface Scan {
  readonly end: number;
  readonly fault: boolean;
}

function scanScalar(text: string, start: number): Scan {
  if (text.charAt(start) === '"') return scanString(text, start);
  const literal = LITERALS.find((name) => text.startsWith(name, start));
  if (literal !== undefined) return { end: start + literal.length, fault: false };
  NUMBER.lastIndex = start;
  return NUMBER.test(text) ? { end: NUMBER.lastIndex, fault: false } : { end: start, fault: true };
}

function scanString(text: string, start: number): Scan {
  let at = start + 1;
  while (at < text.length) {
    const unit = text.charCodeAt(at);
    if (unit === 0x22) return { end: at + 1, fault: false };
    if (unit < 0x20) return { end: at, fault: true };
    if (unit !== 0x5c) {
      at++;
      continue;
    }
    ESCAPE.lastIndex = at;
    if (!ESCAPE.test(text)) return { end: at, fault: true };
    at = ESCAPE.lastIndex;
  }
  return { end: text.length, fault: true };
}

function skipSpace(text: string, start: number): number {
  let at = start;
  while (at < text.length && " \t\n\r".includes(text.charAt(at))) at++;
  return at;
}
