/** `POST /v1/chat/completions`: from the JSON body to a `GenerationRequest`. */

import type { RequestId } from "@kvasir/kit";
import { z } from "zod";
import { type FieldPolicy, refuseUnsupported, withoutNulls } from "./field-policy.ts";
import type { GenerationRequest } from "./generation.ts";
import {
  commonPolicy,
  commonShape,
  defined,
  flag,
  integerFrom,
  MAX_TOP_LOGPROBS,
  type OutputOptions,
  outputOptionsOf,
  samplingOf,
  stopsOf,
} from "./openai-fields.ts";
import { readMessages } from "./openai-messages.ts";
import { invalidValue, parseWith } from "./schema-error.ts";

export interface RequestContext {
  readonly id: RequestId;
  /** Answers a request that names no model. */
  readonly defaultModel: string;
}

export interface ParsedRequest {
  readonly request: GenerationRequest;
  readonly output: OutputOptions;
}

const chatShape = {
  ...commonShape,
  messages: z.unknown().optional(),
  max_completion_tokens: integerFrom(0),
  logprobs: flag,
  top_logprobs: integerFrom(0, MAX_TOP_LOGPROBS),
  chat_template_kwargs: z.record(z.string(), z.unknown(), "an object of template variables").optional(),
};
const chatBody = z.looseObject(chatShape, "a JSON object");

const chatPolicy: FieldPolicy = {
  ...commonPolicy,
  known: Object.keys(chatShape),
  neutral: {
    ...commonPolicy.neutral,
    modalities: {
      isNeutral: (value) => Array.isArray(value) && value.length === 1 && value[0] === "text",
      reason: 'this model writes text only. Leave it out or send ["text"].',
    },
    audio: { isNeutral: () => false, reason: "this model writes text only. Leave it out." },
    web_search_options: { isNeutral: () => false, reason: "this server does not search. Leave it out." },
    reasoning_effort: {
      isNeutral: () => false,
      reason:
        "how long a model thinks is a variable of its template. Send it in chat_template_kwargs if the template reads one.",
    },
    verbosity: { isNeutral: () => false, reason: "no local model reads it. Leave it out." },
    add_generation_prompt: {
      isNeutral: (value) => value === true,
      reason: "an assistant's turn is always opened. Leave it out.",
    },
    continue_final_message: {
      isNeutral: (value) => value === false,
      reason: "an assistant's turn is always opened. Leave it out.",
    },
  },
};

/** @throws CodedError missing_field, invalid_value or unsupported_field, each naming the field */
export function parseChatRequest(json: unknown, context: RequestContext): ParsedRequest {
  const body = objectOf(json);
  refuseUnsupported(body, chatPolicy);
  const fields = parseWith(chatBody, body);
  const maxTokens = maxTokensOf(fields.max_tokens, fields.max_completion_tokens);
  const request: GenerationRequest = {
    id: context.id,
    protocol: "openai-chat",
    model: fields.model ?? context.defaultModel,
    prompts: [
      {
        kind: "chat",
        messages: readMessages(fields.messages),
        ...defined({ templateArguments: fields.chat_template_kwargs }),
      },
    ],
    choices: fields.n ?? 1,
    ...defined({ maxTokens }),
    sampling: samplingOf(fields),
    stop: stopsOf(fields.stop),
    ignoreEos: fields.ignore_eos ?? false,
    cacheSalt: fields.cache_salt ?? null,
    topLogprobs: topLogprobsOf(fields.logprobs ?? false, fields.top_logprobs),
  };
  return { request, output: outputOptionsOf(fields) };
}

/** The body without nulls. @throws CodedError invalid_value for anything but an object */
export function objectOf(json: unknown): Record<string, unknown> {
  if (typeof json !== "object" || json === null || Array.isArray(json)) throw invalidValue("", json, "a JSON object");
  return withoutNulls({ ...json });
}

function maxTokensOf(older: number | undefined, newer: number | undefined): number | undefined {
  if (older !== undefined && newer !== undefined && older !== newer) {
    throw invalidValue("max_tokens", older, `equal to max_completion_tokens (${newer}), or left out`);
  }
  return newer ?? older;
}

function topLogprobsOf(wanted: boolean, top: number | undefined): number | null {
  if (wanted) return top ?? 0;
  if (top !== undefined && top > 0) throw invalidValue("top_logprobs", top, "left out unless logprobs is true");
  return null;
}
