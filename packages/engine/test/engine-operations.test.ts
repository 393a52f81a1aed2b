import type { RequestId } from "@kvasir/kit";
import fc from "fast-check";
import { expect, test } from "vitest";
import { EngineHarness, promptOf } from "./support/engine-harness.ts";

type Operation =
  | { kind: "submit"; start: number; length: number; maxTokens: number }
  | { kind: "cancel"; target: number }
  | { kind: "pause"; target: number; paused: boolean }
  | { kind: "step" };

const operation: fc.Arbitrary<Operation> = fc.oneof(
  fc.record({
    kind: fc.constant("submit" as const),
    start: fc.nat(3),
    length: fc.integer({ min: 1, max: 100 }),
    maxTokens: fc.nat(12),
  }),
  fc.record({ kind: fc.constant("cancel" as const), target: fc.nat(20) }),
  fc.record({ kind: fc.constant("pause" as const), target: fc.nat(20), paused: fc.boolean() }),
  fc.record({ kind: fc.constant("step" as const) }),
);

test("whatever is submitted, cancelled and held, every request ends exactly once and no lane is lost", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(operation, { maxLength: 40 }),
      fc.integer({ min: 1, max: 3 }),
      fc.boolean(),
      async (operations, laneCount, slow) => {
        const harness = new EngineHarness(
          { laneCount, laneTokens: 128, ...(slow ? { asyncFromRows: 2, microbatchRows: 4 } : {}) },
          { maxConcurrency: laneCount, maxPendingRequests: 3, prefillChunkTokens: 16 },
        );
        const ids: RequestId[] = [];
        const prompts = new Map<RequestId, { prompt: number[]; maxTokens: number }>();
        for (const step of operations) {
          if (step.kind === "submit") {
            const prompt = promptOf(step.start, step.length);
            const id = harness.submit(`r${ids.length}`, prompt, { maxTokens: step.maxTokens });
            ids.push(id);
            prompts.set(id, { prompt, maxTokens: step.maxTokens });
          } else if (step.kind === "step") {
            await new Promise<void>((resolve) => setImmediate(resolve));
          } else {
            const id = ids[step.target];
            if (!id) continue;
            if (step.kind === "cancel") harness.engine.cancel(id);
            else harness.engine.setPaused(id, step.paused);
          }
        }
        for (const id of ids) harness.engine.setPaused(id, false);
        await harness.settle();
        for (const id of ids) {
          const terminal = harness.of(id).filter((event) => event.kind === "finished" || event.kind === "failed");
          expect(terminal).toHaveLength(1);
          expect(harness.of(id).at(-1)).toBe(terminal[0]);
          const { tokens, result } = await harness.outcome(id);
          if (result?.reason !== "length") continue;
          const asked = prompts.get(id);
          const fresh = await new EngineHarness({ laneTokens: 128 }).run("fresh", asked?.prompt ?? [], {
            maxTokens: asked?.maxTokens ?? 0,
          });
          expect(tokens).toEqual(fresh.tokens);
        }
        expect(harness.engine.status()).toMatchObject({ waiting: 0, prefilling: 0, decoding: 0 });
        expect(harness.clock.pendingTimers).toBe(0);
      },
    ),
    { numRuns: 150 },
  );
});
