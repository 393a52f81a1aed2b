/** What makes a request impossible whatever the load: told before it queues. */

import { CodedError } from "@kvasir/kit";
import type { BackendFacts } from "./backend.ts";
import type { EngineRequest } from "./request.ts";

/** The fault of a request that this backend can never run, or null. */
export function requestFault(request: EngineRequest, facts: BackendFacts): CodedError | null {
  const { promptTokens, maxTokens } = request;
  if (promptTokens.length === 0) return new CodedError("invalid_value", "The prompt has no tokens; at least one is needed.");
  // An output token needs a place too.
  if (promptTokens.length > facts.laneTokens - (maxTokens > 0 ? 1 : 0)) {
    const numbers = `The prompt has ${promptTokens.length} tokens; the context window is ${facts.laneTokens} tokens`;
    return new CodedError(
      "context_length_exceeded",
      `${numbers}, of which at least one is for the answer. Shorten the prompt.`,
    );
  }
  const foreign = promptTokens.find((token) => token < 0 || token >= facts.vocabSize);
  if (foreign === undefined) return null;
  return new CodedError("invalid_value", `Token ${foreign} is outside the vocabulary (0..${facts.vocabSize - 1}).`);
}
