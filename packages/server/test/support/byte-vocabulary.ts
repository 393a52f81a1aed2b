/** A vocabulary of bytes with ChatML's control tokens, and what a scripted model says in it. */

import type { Tokenizer } from "@kvasir/engine";
import { ChatTemplate } from "@kvasir/models";

const encoder = new TextEncoder();

const START_TOKEN = 256;
/** Ends a generation. */
export const END_TOKEN = 257;
export const BOS_TOKEN = 258;
const CONTROL_TEXTS: ReadonlyArray<readonly [text: string, token: number]> = [
  ["<|im_start|>", START_TOKEN],
  ["<|im_end|>", END_TOKEN],
  ["<s>", BOS_TOKEN],
];

export const bytePieces: readonly Uint8Array[] = [
  ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
  new Uint8Array(0),
  new Uint8Array(0),
  new Uint8Array(0),
];

export const chatMl = new ChatTemplate({
  sources: { default: null, named: new Map() },
  controlTexts: CONTROL_TEXTS.map(([text]) => text),
  bosText: "<s>",
  eosText: "<|im_end|>",
  addsBos: true,
});

export class ByteTokenizer implements Tokenizer {
  readonly vocabSize = bytePieces.length;
  readonly bosToken = BOS_TOKEN;
  readonly eosToken = END_TOKEN;
  readonly controlTexts = CONTROL_TEXTS.map(([text]) => text);

  async tokenize(text: string, options: { readonly addSpecial: boolean; readonly parseSpecial: boolean }): Promise<Int32Array> {
    const tokens = options.addSpecial ? [BOS_TOKEN] : [];
    let rest = text;
    while (rest !== "") {
      const control = options.parseSpecial ? CONTROL_TEXTS.find(([known]) => rest.startsWith(known)) : undefined;
      const piece = control?.[0] ?? String.fromCodePoint(rest.codePointAt(0) ?? 0);
      tokens.push(...(control ? [control[1]] : encoder.encode(piece)));
      rest = rest.slice(piece.length);
    }
    return Int32Array.from(tokens);
  }

  pieceOf(token: number, options: { readonly special?: boolean } = {}): Uint8Array {
    const control = CONTROL_TEXTS.find(([, known]) => known === token);
    if (control) return options.special ? encoder.encode(control[0]) : new Uint8Array(0);
    return bytePieces[token] ?? new Uint8Array(0);
  }

  close(): void {}
}

/**
 * A model that answers `reply(prompt)` after the last opening of an assistant's turn, or after the last ":" of a plain text,
 * and then ends.
 */
export function speaker(reply: (prompt: string) => string): (tokens: readonly number[]) => number | null {
  const opening = [START_TOKEN, ...encoder.encode("assistant\n")];
  return (tokens) => {
    const start = Math.max(endOfLast(tokens, opening), endOfLast(tokens, [0x3a]));
    if (start < 0) return null;
    const prompt = Buffer.from(tokens.slice(0, start).filter((token) => token < 256)).toString("utf8");
    return encoder.encode(reply(prompt))[tokens.length - start] ?? END_TOKEN;
  };
}

function endOfLast(tokens: readonly number[], needle: readonly number[]): number {
  for (let end = tokens.length; end >= needle.length; end--) {
    if (needle.every((token, index) => tokens[end - needle.length + index] === token)) return end;
  }
  return -1;
}
