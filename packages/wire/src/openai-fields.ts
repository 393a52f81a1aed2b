/** Fields that OpenAI's Chat Completions and Completions have in common, and the sampling fields of llama.cpp beside them. */

import { z } from "zod";
import type { FieldPolicy, NeutralField } from "./field-policy.ts";
import type { SamplingOptions } from "./generation.ts";
import { invalidValue } from "./schema-error.ts";

export const MAX_STOPS = 16;
export const MAX_CHOICES = 128;
export const MAX_TOP_LOGPROBS = 20;
const MAX_LOGIT_BIAS = 100;

function numberFrom(least: number, most: number) {
  const rule = `a number from ${least} to ${most}`;
  return z.number(rule).gte(least, rule).lte(most, rule).optional();
}

export function integerFrom(least: number, most?: number) {
  const rule = most === undefined ? `an integer of at least ${least}` : `an integer from ${least} to ${most}`;
  const schema = z.number(rule).int(rule).gte(least, rule);
  return (most === undefined ? schema : schema.lte(most, rule)).optional();
}

export const flag = z.boolean("true or false").optional();

const stopRule = `a string or up to ${MAX_STOPS} strings, none of them empty`;
const stopText = z.string(stopRule).min(1, stopRule);
const biasRule = "an object of token ids with numbers from -100 to 100";
const streamOptionsRule = "an object with include_usage";

export const commonShape = {
  model: z.string("the name of a model").min(1, "the name of a model").optional(),
  max_tokens: integerFrom(0),
  temperature: numberFrom(0, 2),
  top_p: numberFrom(0, 1),
  top_k: integerFrom(-1),
  min_p: numberFrom(0, 1),
  typical_p: numberFrom(0, 1),
  repeat_penalty: z.number("a number above 0").gt(0, "a number above 0").lte(10, "a number above 0 and at most 10").optional(),
  repeat_last_n: integerFrom(-1),
  frequency_penalty: numberFrom(-2, 2),
  presence_penalty: numberFrom(-2, 2),
  logit_bias: z.record(z.string(), z.number(biasRule).gte(-100, biasRule).lte(100, biasRule), biasRule).optional(),
  seed: z.int("an integer").optional(),
  stop: z.union([stopText, z.array(stopText).max(MAX_STOPS, stopRule)], stopRule).optional(),
  n: integerFrom(1, MAX_CHOICES),
  stream: flag,
  stream_options: z.strictObject({ include_usage: flag, include_obfuscation: flag }, { error: streamOptionsRule }).optional(),
  ignore_eos: flag,
  cache_salt: z
    .string("a text of 1 to 256 characters")
    .min(1, "a text of 1 to 256 characters")
    .max(256, "a text of 1 to 256 characters")
    .optional(),
  timings_per_token: flag,
  return_progress: flag,
};

type CommonFields = z.output<z.ZodObject<typeof commonShape>>;

/** How the answer is sent; it does not change what is generated. */
export interface OutputOptions {
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly timingsPerToken: boolean;
  readonly returnProgress: boolean;
}

export function outputOptionsOf(fields: CommonFields): OutputOptions {
  return {
    stream: fields.stream ?? false,
    includeUsage: fields.stream_options?.include_usage ?? false,
    timingsPerToken: fields.timings_per_token ?? false,
    returnProgress: fields.return_progress ?? false,
  };
}

export function samplingOf(fields: CommonFields): SamplingOptions {
  return defined({
    temperature: fields.temperature,
    // vLLM and llama.cpp both know -1, the engine only 0, for "all tokens".
    topK: fields.top_k === -1 ? 0 : fields.top_k,
    topP: fields.top_p,
    minP: fields.min_p,
    typicalP: fields.typical_p,
    repeatPenalty: fields.repeat_penalty,
    repeatLastN: fields.repeat_last_n,
    frequencyPenalty: fields.frequency_penalty,
    presencePenalty: fields.presence_penalty,
    logitBias: fields.logit_bias === undefined ? undefined : logitBiasOf(fields.logit_bias),
    // llama.cpp's -1: any seed.
    seed: fields.seed === -1 ? undefined : fields.seed,
  });
}

export function stopsOf(stop: CommonFields["stop"]): readonly string[] {
  if (stop === undefined) return [];
  return typeof stop === "string" ? [stop] : stop;
}

function logitBiasOf(bias: Readonly<Record<string, number>>): Array<readonly [number, number]> {
  const entries = Object.entries(bias);
  if (entries.length > 1024) throw invalidValue("logit_bias", bias, "at most 1024 token ids");
  return entries.map(([token, value]) => {
    if (!/^\d{1,9}$/.test(token))
      throw invalidValue(`logit_bias.${token.slice(0, 20)}`, value, 'under the id of a token, such as "50256"');
    return [Number(token), Math.max(-MAX_LOGIT_BIAS, Math.min(MAX_LOGIT_BIAS, value))] as const;
  });
}

type Defined<Fields> = { [Name in keyof Fields]?: Exclude<Fields[Name], undefined> };

/** The object without its undefined members, as `exactOptionalPropertyTypes` wants it. */
export function defined<Fields extends object>(fields: Fields): Defined<Fields> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Defined<Fields>;
}

const only = (values: readonly unknown[], reason: string): NeutralField => ({
  isNeutral: (value) => values.includes(value),
  reason,
});
const emptyArray = (value: unknown) => Array.isArray(value) && value.length === 0;

export const commonPolicy = {
  /** Who asks, where it is billed, how it is cached, how fast it may be. */
  harmless: [
    "user",
    "metadata",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prediction",
    "parallel_tool_calls",
  ],
  neutral: {
    store: only([false], "nothing is stored on this server. Leave it out or send false."),
    cache_prompt: only([true], "prompts are always cached. Leave it out or send true."),
    tools: { isNeutral: emptyArray, reason: "tool calls are not available in this version. Leave it out." },
    tool_choice: only(["none", "auto"], 'tool calls are not available in this version. Leave it out or send "none".'),
    functions: { isNeutral: emptyArray, reason: "tool calls are not available in this version. Leave it out." },
    function_call: only(["none", "auto"], 'tool calls are not available in this version. Leave it out or send "none".'),
    response_format: {
      isNeutral: (value: unknown) => typeof value === "object" && value !== null && "type" in value && value.type === "text",
      reason: 'structured output is not available in this version. Leave it out or send {"type":"text"}.',
    },
    grammar: only([""], "grammars are not available in this version. Leave it out."),
    json_schema: only([], "structured output is not available in this version. Leave it out."),
    use_beam_search: only([false], "there is no beam search. Leave it out."),
    skip_special_tokens: only([true], "control tokens are never part of the text. Leave it out."),
    min_tokens: only([0], "there is no lower limit; ignore_eos with max_tokens gives an exact length."),
    mirostat: only([0], "this sampler is not available. Leave it out."),
    dry_multiplier: only([0], "this sampler is not available. Leave it out."),
    xtc_probability: only([0], "this sampler is not available. Leave it out."),
    dynatemp_range: only([0], "this sampler is not available. Leave it out."),
  },
  aliases: {
    n_predict: "max_tokens",
    num_predict: "max_tokens",
    max_new_tokens: "max_tokens",
    max_output_tokens: "max_tokens",
    repetition_penalty: "repeat_penalty (with repeat_last_n: -1 for the whole text)",
    typical: "typical_p",
    stop_sequences: "stop",
    stop_token_ids: "stop",
    num_ctx: "the option --max-context-tokens of the server: the window is fixed at the start",
    options: "the fields themselves at the top level, such as temperature",
    enable_thinking: 'chat_template_kwargs: {"enable_thinking": …}',
  },
} satisfies Omit<FieldPolicy, "known">;
