/** From the bytes of a request body to a JSON value, with an error of its own for each way in which bytes are not one. */

import { CodedError } from "@kvasir/kit";
import { findJsonFault } from "./json-fault.ts";

const SURROGATE_ESCAPE = /\\u[dD][89a-fA-F]/;

/**
 * @throws CodedError invalid_utf8 for bytes that are not UTF-8 and for escapes that make half a surrogate pair: such a text has
 *   no tokens
 * @throws CodedError invalid_json with the position
 */
export function parseJsonBody(bytes: Uint8Array): unknown {
  const text = decodeUtf8(bytes);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new CodedError("invalid_json", describeFault(text), { cause });
  }
  if (SURROGATE_ESCAPE.test(text)) refuseLoneSurrogates(value);
  return value;
}

function decodeUtf8(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new CodedError("invalid_utf8", "The body is not valid UTF-8. Send JSON encoded as UTF-8.", { cause });
  }
}

function describeFault(text: string): string {
  if (text.trim() === "") return "The body is empty. Send a JSON object.";
  const fault = findJsonFault(text);
  if (fault === null) return "The body is not valid JSON.";
  const where = `position ${fault.offset} (line ${fault.line}, column ${fault.column})`;
  return fault.atEnd
    ? `The body is not valid JSON: it ends too early, at ${where}.`
    : `The body is not valid JSON at ${where}.`;
}

/** Walks without recursion: the nesting is the client's choice. */
function refuseLoneSurrogates(root: unknown): void {
  const rest: Array<{ readonly value: unknown; readonly path: string }> = [{ value: root, path: "" }];
  for (let next = rest.pop(); next; next = rest.pop()) {
    const { value, path } = next;
    if (typeof value === "string") {
      if (!value.isWellFormed()) refuse(path);
    } else if (Array.isArray(value)) {
      for (const [index, item] of value.entries()) rest.push({ value: item, path: `${path}[${index}]` });
    } else if (typeof value === "object" && value !== null) {
      for (const [key, item] of Object.entries(value)) {
        const inner = path === "" ? key : `${path}.${key}`;
        if (!key.isWellFormed()) refuse(path);
        rest.push({ value: item, path: inner });
      }
    }
  }
}

function refuse(param: string): never {
  throw new CodedError(
    "invalid_utf8",
    `${param === "" ? "The body" : param} holds half of a surrogate pair (an escape such as \\ud83d alone), which is no character. Send whole characters.`,
    param === "" ? {} : { param },
  );
}
