/** `POST /v1/completions`: from the JSON body to a `GenerationRequest`. */

import { z } from "zod";
import { type FieldPolicy, refuseUnsupported, unsupported } from "./field-policy.ts";
import type { GenerationRequest, Prompt } from "./generation.ts";
import { objectOf, type ParsedRequest, type RequestContext } from "./openai-chat-request.ts";
import {
  commonPolicy,
  commonShape,
  defined,
  flag,
  integerFrom,
  MAX_TOP_LOGPROBS,
  outputOptionsOf,
  samplingOf,
  stopsOf,
} from "./openai-fields.ts";
import { invalidValue, parseWith } from "./schema-error.ts";

export interface ParsedCompletionRequest extends ParsedRequest {
  /** Send the prompt in front of each completion. */
  readonly echo: boolean;
}

const completionShape = {
  ...commonShape,
  prompt: z.unknown().optional(),
  logprobs: integerFrom(0, MAX_TOP_LOGPROBS),
  best_of: integerFrom(1),
  echo: flag,
  add_special_tokens: flag,
  parse_special: flag,
};
const completionBody = z.looseObject(completionShape, "a JSON object");

const completionPolicy: FieldPolicy = {
  ...commonPolicy,
  known: Object.keys(completionShape),
  neutral: {
    ...commonPolicy.neutral,
    suffix: {
      isNeutral: (value) => value === "",
      reason: "fill-in-the-middle is not available. Write the model's own markers into the prompt.",
    },
  },
  aliases: {
    ...commonPolicy.aliases,
    messages: "/v1/chat/completions",
    max_completion_tokens: "max_tokens",
    top_logprobs: "logprobs",
  },
};

const promptRule = "a string, an array of strings, an array of token ids or an array of such arrays";

/** @throws CodedError missing_field, invalid_value or unsupported_field, each naming the field */
export function parseCompletionRequest(json: unknown, context: RequestContext): ParsedCompletionRequest {
  const body = objectOf(json);
  refuseUnsupported(body, completionPolicy);
  const fields = parseWith(completionBody, body);
  const choices = fields.n ?? 1;
  const echo = fields.echo ?? false;
  if (fields.best_of !== undefined && fields.best_of !== choices) {
    throw unsupported(
      "best_of",
      `best_of is ${fields.best_of}; only the value of n (${choices}) is supported. Ask for n choices and keep the best.`,
    );
  }
  if (echo && fields.logprobs !== undefined) {
    throw unsupported(
      "echo",
      "echo together with logprobs is not supported: there are no logprobs of prompt tokens. Leave one of them out.",
    );
  }
  const request: GenerationRequest = {
    id: context.id,
    protocol: "openai-completions",
    model: fields.model ?? context.defaultModel,
    prompts: readPrompts(fields.prompt, fields.add_special_tokens ?? true, fields.parse_special ?? true),
    choices,
    ...defined({ maxTokens: fields.max_tokens }),
    sampling: samplingOf(fields),
    stop: stopsOf(fields.stop),
    ignoreEos: fields.ignore_eos ?? false,
    cacheSalt: fields.cache_salt ?? null,
    topLogprobs: fields.logprobs ?? null,
  };
  return { request, output: outputOptionsOf(fields), echo };
}

function readPrompts(value: unknown, addSpecial: boolean, parseSpecial: boolean): readonly Prompt[] {
  if (typeof value === "string") return [{ kind: "text", text: value, addSpecial, parseSpecial }];
  if (!Array.isArray(value) || value.length === 0) throw invalidValue("prompt", value, promptRule);
  if (typeof value[0] === "number") return [{ kind: "tokens", tokens: readTokens(value, "prompt") }];
  return value.map((item: unknown, index): Prompt => {
    if (typeof item === "string" && typeof value[0] === "string") return { kind: "text", text: item, addSpecial, parseSpecial };
    if (Array.isArray(item) && Array.isArray(value[0])) return { kind: "tokens", tokens: readTokens(item, `prompt[${index}]`) };
    throw invalidValue(`prompt[${index}]`, item, `of the same kind as the others: ${promptRule}`);
  });
}

/** Not by schema: a prompt of 100,000 tokens is read in one pass. */
export function readTokens(values: readonly unknown[], at: string): number[] {
  if (values.length === 0) throw invalidValue(at, values, "at least one token id");
  return values.map((value, index) => {
    if (typeof value !== "number" || !Number.isInteger(value) || value < 0 || value > 0x7fffffff) {
      throw invalidValue(`${at}[${index}]`, value, "a token id: an integer of at least 0");
    }
    return value;
  });
}
