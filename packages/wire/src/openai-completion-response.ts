/** Completions (the older API): how a choice looks. Owns the text offset of each choice's next logprob. */

import type { OutputLogprob } from "./generation.ts";
import type { Dialect } from "./openai-response.ts";

interface LegacyLogprobs {
  readonly tokens: string[];
  readonly token_logprobs: number[];
  readonly top_logprobs: Array<Record<string, number>>;
  /** In characters (code points) from the start of the choice's text. */
  readonly text_offset: number[];
}

/** @param echoOf the prompt text in front of a choice's completion, "" when the request does not want it */
export function completionDialect(echoOf: (index: number) => string): Dialect {
  const offsets = new Map<number, TextOffset>();
  const legacy = (index: number, logprobs: readonly OutputLogprob[]): LegacyLogprobs => {
    let offset = offsets.get(index);
    if (!offset) {
      offset = new TextOffset();
      offsets.set(index, offset);
    }
    return legacyLogprobs(logprobs, offset);
  };
  return {
    bodyObject: "text_completion",
    chunkObject: "text_completion",
    opening: (index) => (echoOf(index) === "" ? null : { text: echoOf(index), index, logprobs: null, finish_reason: null }),
    delta: (index, text, logprobs) => ({
      text,
      index,
      logprobs: logprobs === null ? null : legacy(index, logprobs),
      finish_reason: null,
    }),
    closing: (index, reason) => ({ text: "", index, logprobs: null, finish_reason: reason }),
    whole: ({ index, text, logprobs, reason }, wantsLogprobs) => ({
      text: echoOf(index) + text,
      index,
      logprobs: wantsLogprobs ? legacy(index, logprobs) : null,
      finish_reason: reason,
    }),
  };
}

/** Counts characters of token bytes as they complete. */
class TextOffset {
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #characters = 0;

  /** Where the token begins; then moves past it. */
  advance(bytes: readonly number[]): number {
    const start = this.#characters;
    for (const _ of this.#decoder.decode(Uint8Array.from(bytes), { stream: true })) this.#characters++;
    return start;
  }
}

function legacyLogprobs(logprobs: readonly OutputLogprob[], offset: TextOffset): LegacyLogprobs {
  return {
    tokens: logprobs.map(nameOf),
    token_logprobs: logprobs.map(({ logprob }) => logprob),
    top_logprobs: logprobs.map(({ top }) => Object.fromEntries(top.map((other) => [nameOf(other), other.logprob]))),
    text_offset: logprobs.map(({ bytes }) => offset.advance(bytes)),
  };
}

/** A part of a character cannot be written as text: OpenAI writes its bytes. */
function nameOf({ token, bytes }: { readonly token: string; readonly bytes: readonly number[] }): string {
  const whole = !token.includes("\ufffd") || Buffer.from(token).equals(Uint8Array.from(bytes));
  return whole ? token : `bytes:${bytes.map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("")}`;
}
