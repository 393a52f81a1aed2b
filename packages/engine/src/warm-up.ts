/** Runs every kind of step once on an empty lane: lazy allocation is paid before the first request, and costs are known. */

import { type Clock, invariant } from "@kvasir/kit";
import type { Backend } from "./backend.ts";
import { Batch } from "./batch.ts";
import type { StepCost } from "./step-cost.ts";

const PROMPT_TOKENS = 32;

/** Lane 0 must be empty, and is empty afterwards. */
export async function warmUp(backend: Backend, cost: StepCost, clock: Clock): Promise<void> {
  const { batchTokens, laneTokens, vocabSize } = backend.facts;
  const chunk = Math.min(PROMPT_TOKENS, batchTokens, Math.floor((laneTokens - 2) / 2));
  const batch = new Batch(Math.max(chunk, 1));
  for (const rows of [chunk, chunk, 1, 1].filter((count) => count > 0)) {
    const start = backend.storedTokens(0);
    batch.clear();
    for (let i = 0; i < rows; i++) batch.push(0, start + i, i % vocabSize, i === rows - 1);
    const startMs = clock.monotonicMs();
    const outcome = await backend.decode(batch);
    invariant(outcome === "done", `warm-up ended with ${outcome}`);
    const milliseconds = clock.monotonicMs() - startMs;
    const [decodeRows, prefillTokens] = rows === 1 ? [1, 0] : [0, rows];
    cost.record({ decodeRows, prefillTokens, prefillDepth: start, milliseconds });
  }
  backend.truncate(0, 0);
}
