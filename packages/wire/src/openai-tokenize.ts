/** `POST /tokenize` and `/detokenize`, with the field names of llama.cpp. */

import { z } from "zod";
import { type FieldPolicy, refuseUnsupported } from "./field-policy.ts";
import { objectOf } from "./openai-chat-request.ts";
import { readTokens } from "./openai-completion-request.ts";
import { flag } from "./openai-fields.ts";
import { invalidValue, parseWith } from "./schema-error.ts";

const tokenizeShape = {
  model: z.string("the name of a model").optional(),
  content: z.string("a string").optional(),
  prompt: z.string("a string").optional(),
  add_special: flag,
  parse_special: flag,
  with_pieces: flag,
};
const tokenizeBody = z.looseObject(tokenizeShape, "a JSON object");

export interface TokenizeRequest {
  readonly text: string;
  /** BOS in front where the model wants it. Default false. */
  readonly addSpecial: boolean;
  /** Read control token texts as control tokens. Default true. */
  readonly parseSpecial: boolean;
  /** Tell the text of each token too. Default false. */
  readonly withPieces: boolean;
}

export function parseTokenizeRequest(json: unknown): TokenizeRequest {
  const body = objectOf(json);
  refuseUnsupported(body, policyOf(tokenizeShape));
  const fields = parseWith(tokenizeBody, body);
  const text = fields.content ?? fields.prompt;
  if (text === undefined) throw invalidValue("content", undefined, "the text to tokenize, a string");
  return {
    text,
    addSpecial: fields.add_special ?? false,
    parseSpecial: fields.parse_special ?? true,
    withPieces: fields.with_pieces ?? false,
  };
}

const detokenizeShape = { model: z.string("the name of a model").optional(), tokens: z.unknown().optional() };
const detokenizeBody = z.looseObject(detokenizeShape, "a JSON object");

export function parseDetokenizeRequest(json: unknown): { readonly tokens: readonly number[] } {
  const body = objectOf(json);
  refuseUnsupported(body, policyOf(detokenizeShape));
  const fields = parseWith(detokenizeBody, body);
  if (!Array.isArray(fields.tokens)) throw invalidValue("tokens", fields.tokens, "an array of token ids");
  return { tokens: fields.tokens.length === 0 ? [] : readTokens(fields.tokens, "tokens") };
}

function policyOf(shape: Readonly<Record<string, unknown>>): FieldPolicy {
  return {
    known: Object.keys(shape),
    harmless: [],
    neutral: {},
    aliases: { text: "content", add_special_tokens: "add_special" },
  };
}
