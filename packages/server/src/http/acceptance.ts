/**
 * The moment at which a stream may begin. Until the engine has taken every choice of a request, a refusal can still be an HTTP
 * status; but no client waits longer than `ACCEPTANCE_MS` for its headers.
 */

import type { Clock, CodedErrorRecord } from "@kvasir/kit";
import type { GenerationEvent } from "@kvasir/wire";

export const ACCEPTANCE_MS = 1_500;

export type EventSource = AsyncGenerator<GenerationEvent, void, undefined>;

export type Acceptance =
  | { readonly kind: "accepted"; readonly events: EventSource }
  | { readonly kind: "refused"; readonly error: CodedErrorRecord }
  | { readonly kind: "cancelled" };

/** @param choices how many choices must be queued or admitted. `events` of the result begins with everything that was read */
export async function awaitAcceptance(source: EventSource, choices: number, clock: Clock): Promise<Acceptance> {
  const read: GenerationEvent[] = [];
  const accepted = new Set<number>();
  let timedOut = false;
  let stopTimer = (): void => {};
  const timeout = new Promise<null>((resolve) => {
    stopTimer = clock.startTimer(ACCEPTANCE_MS, () => {
      timedOut = true;
      resolve(null);
    });
  });
  try {
    for (;;) {
      const next = source.next();
      const result = await Promise.race([next, timeout]);
      if (result === null || timedOut) return { kind: "accepted", events: replay(read, source, next) };
      if (result.done) return { kind: "accepted", events: replay(read, source, null) };
      const event = result.value;
      if (event.kind === "failed") return refuse(source, event.error);
      if (event.kind === "cancelled") return { kind: "cancelled" };
      read.push(event);
      if (event.kind === "queued" || event.kind === "admitted") accepted.add(event.choice);
      if (accepted.size === choices || event.kind === "finished")
        return { kind: "accepted", events: replay(read, source, null) };
    }
  } finally {
    stopTimer();
  }
}

async function refuse(source: EventSource, error: CodedErrorRecord): Promise<Acceptance> {
  await source.return();
  return { kind: "refused", error };
}

async function* replay(
  read: readonly GenerationEvent[],
  source: EventSource,
  pending: Promise<IteratorResult<GenerationEvent, void>> | null,
): EventSource {
  try {
    yield* read;
    const result = await pending;
    if (result && !result.done) yield result.value;
    yield* source;
  } finally {
    await source.return();
  }
}
