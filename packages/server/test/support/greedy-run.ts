/**
 * Greedy output of one prompt, compared between a run alone and a run in company. Kernels add in an order that depends on the
 * batch, so two tokens that are almost equally likely may change places; after that the texts differ for good reason.
 */

import { postJson, StreamCall } from "./http-client.ts";

interface LegacyLogprobs {
  readonly tokens: readonly string[];
  readonly token_logprobs: readonly number[];
  readonly top_logprobs: ReadonlyArray<Readonly<Record<string, number>>>;
}

export interface GreedyRun {
  readonly tokens: readonly string[];
  /** Of each token and of the runner-up. */
  readonly top: ReadonlyArray<Readonly<Record<string, number>>>;
}

/** Logprobs closer than this are a tie; what company changes is far smaller. */
const TIE = 0.01;

const greedyBody = (prompt: string, maxTokens: number) => ({
  prompt,
  max_tokens: maxTokens,
  temperature: 0,
  ignore_eos: true,
  logprobs: 2,
});

export async function greedyAlone(url: string, prompt: string, maxTokens: number): Promise<GreedyRun> {
  const { body } = await postJson(`${url}/v1/completions`, greedyBody(prompt, maxTokens));
  const [choice] = body.choices as ReadonlyArray<{ readonly logprobs: LegacyLogprobs }>;
  return { tokens: choice?.logprobs.tokens ?? [], top: choice?.logprobs.top_logprobs ?? [] };
}

export function greedyStream(url: string, prompt: string, maxTokens: number): StreamCall {
  return new StreamCall(`${url}/v1/completions`, { ...greedyBody(prompt, maxTokens), stream: true });
}

/** Once it has ended. */
export function greedyRunOf(stream: StreamCall): GreedyRun {
  const parts = stream
    .chunks<{ readonly choices: ReadonlyArray<{ readonly logprobs: LegacyLogprobs | null }> }>()
    .flatMap((chunk) => chunk.choices.flatMap(({ logprobs }) => logprobs ?? []));
  return { tokens: parts.flatMap(({ tokens }) => tokens), top: parts.flatMap((part) => part.top_logprobs) };
}

/** Null when the runs have the same length and differ in nothing, or first in a tie; else what is different. */
export function difference(alone: GreedyRun, together: GreedyRun): string | null {
  if (alone.tokens.length !== together.tokens.length)
    return `${alone.tokens.length} tokens alone, ${together.tokens.length} together`;
  const index = alone.tokens.findIndex((token, at) => token !== together.tokens[at]);
  if (index < 0) return null;
  const [chosen = "", other = ""] = [alone.tokens[index], together.tokens[index]];
  const logprobs = alone.top[index] ?? {};
  const gap = (logprobs[chosen] ?? Number.NaN) - (logprobs[other] ?? Number.NaN);
  return gap < TIE
    ? null
    : `token ${index} is ${JSON.stringify(chosen)} alone and ${JSON.stringify(other)} together, ${gap} apart`;
}
