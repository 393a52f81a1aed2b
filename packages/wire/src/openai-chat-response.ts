/** Chat Completions: how a choice looks. */

import type { OutputLogprob } from "./generation.ts";
import type { Dialect } from "./openai-response.ts";

export const chatDialect: Dialect = {
  bodyObject: "chat.completion",
  chunkObject: "chat.completion.chunk",
  opening: (index) => ({
    index,
    delta: { role: "assistant", content: "", refusal: null },
    logprobs: null,
    finish_reason: null,
  }),
  delta: (index, content, logprobs) => ({
    index,
    delta: { content },
    logprobs: logprobs === null ? null : chatLogprobs(logprobs),
    finish_reason: null,
  }),
  closing: (index, reason) => ({ index, delta: {}, logprobs: null, finish_reason: reason }),
  whole: ({ index, text, logprobs, reason }, wantsLogprobs) => ({
    index,
    message: { role: "assistant", content: text, refusal: null },
    logprobs: wantsLogprobs ? chatLogprobs(logprobs) : null,
    finish_reason: reason,
  }),
};

function chatLogprobs(logprobs: readonly OutputLogprob[]): object {
  const content = logprobs.map(({ token, logprob, bytes, top }) => ({
    token,
    logprob,
    bytes,
    top_logprobs: top.map((other) => ({ token: other.token, logprob: other.logprob, bytes: other.bytes })),
  }));
  return { content, refusal: null };
}
