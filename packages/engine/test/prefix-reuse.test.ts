import type { RequestId } from "@kvasir/kit";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { EngineHarness, promptOf } from "./support/engine-harness.ts";

const computed = (harness: EngineHarness, id: string): number => {
  const last = harness.of(id).at(-1);
  return last?.kind === "finished" ? last.result.computedTokens : -1;
};
const fresh = async (prompt: number[], maxTokens = 8): Promise<number[]> =>
  (await new EngineHarness({ laneTokens: 1024 }).run("fresh", prompt, { maxTokens })).tokens;

/** More sessions than lanes, each growing turn by turn. */
async function rotate(harness: EngineHarness, sessions: number[][], turns: number): Promise<void> {
  for (let turn = 0; turn < turns; turn++) {
    for (const [index, session] of sessions.entries()) {
      const id = `s${index}t${turn}`;
      const { tokens } = await harness.run(id, session, { maxTokens: 4 });
      expect(tokens).toEqual(await fresh(session, 4));
      session.push(...tokens, turn, index);
      await harness.settle();
    }
  }
}

describe("the prefix store behind the lanes", () => {
  test("sessions that outgrow the lanes come back from host memory", async () => {
    const harness = new EngineHarness({ laneCount: 2, laneTokens: 1024 }, { maxConcurrency: 2 }, 64);
    await rotate(harness, [promptOf(1, 300), promptOf(50, 310), promptOf(90, 280), promptOf(140, 300), promptOf(200, 333)], 4);
    for (let session = 0; session < 5; session++) {
      for (let turn = 1; turn < 4; turn++) expect(computed(harness, `s${session}t${turn}`)).toBeLessThanOrEqual(8);
    }
    expect(harness.engine.status().store?.counters.hostHits).toBeGreaterThan(10);
  });

  test("without room for all, what is left is right, and the log says that the rest was evicted", async () => {
    const harness = new EngineHarness({ laneCount: 1, laneTokens: 1024 }, { maxConcurrency: 1 }, 4);
    await rotate(harness, [promptOf(1, 300), promptOf(50, 310), promptOf(90, 280)], 3);
    const reasons = harness.events.map((event) => (event.kind === "finished" ? event.result.resetReason : ""));
    expect(reasons).toContain("evicted");
  });

  test("a session that takes over the head of another does not cost that one its tail", async () => {
    const harness = new EngineHarness({ laneCount: 1, laneTokens: 2048 }, { maxConcurrency: 1 }, 64);
    const head = promptOf(1, 400);
    const parent = [...head, ...promptOf(77, 500)];
    await harness.run("parent", parent);
    const child = await harness.run("child", [...head, ...promptOf(99, 30)]);
    expect(child.result).toMatchObject({ cachedTokens: 400, computedTokens: 30 });
    const back = await harness.run("back", [...parent, 1, 2, 3]);
    expect(back.result?.computedTokens).toBeLessThanOrEqual(4);
    expect(back.result).toMatchObject({ hostTokens: back.result?.cachedTokens });
    await harness.settle();
  });

  test("short sessions that begin alike keep their lanes while others are empty, and come back when none is", async () => {
    const harness = new EngineHarness({ laneCount: 2, laneTokens: 1024 }, { maxConcurrency: 2 }, 64);
    await rotate(
      harness,
      [
        [1, 2, 3, ...promptOf(7, 40)],
        [1, 2, 3, ...promptOf(90, 40)],
        [1, 2, 3, ...promptOf(150, 40)],
      ],
      4,
    );
    for (let session = 0; session < 3; session++) {
      for (let turn = 1; turn < 4; turn++) expect(computed(harness, `s${session}t${turn}`)).toBeLessThanOrEqual(8);
    }
  });

  test("a child copies its parent's head out of a lane that is running", async () => {
    const harness = new EngineHarness({ asyncFromRows: 1, laneTokens: 1024 }, {}, 0);
    const head = promptOf(1, 400);
    harness.submit("parent", head, { maxTokens: 300 });
    await harness.until(() => harness.of("parent").some((event) => event.kind === "output"));
    const child = await harness.run("child", [...head, 5, 6, 7]);
    expect(child.result).toMatchObject({ cachedTokens: 400, hostTokens: 0, computedTokens: 3 });
    expect(child.tokens).toEqual(await fresh([...head, 5, 6, 7]));
    expect(harness.ended("parent")).toBe(false);
    expect((await harness.outcome("parent")).tokens).toEqual(await fresh(head, 300));
  });

  test("requests that arrive together with the same head compute it once", async () => {
    const harness = new EngineHarness({ asyncFromRows: 1, laneTokens: 1024 }, {}, 64);
    const head = promptOf(1, 500);
    const prompts = [3, 4, 5, 6].map((tail) => [...head, ...promptOf(tail * 30, 20)]);
    const outcomes = await Promise.all(prompts.map((prompt, index) => harness.run(`r${index}`, prompt)));
    const total = outcomes.reduce((sum, { result }) => sum + (result?.computedTokens ?? 0), 0);
    expect(total).toBe(500 + 4 * 20);
    for (const [index, prompt] of prompts.entries()) expect(outcomes[index]?.tokens).toEqual(await fresh(prompt));
    await harness.settle();
  });

  test("when the one that computes the head is cancelled, a follower goes on where it stopped", async () => {
    const harness = new EngineHarness({ asyncFromRows: 1, laneTokens: 1024 }, {}, 64);
    const head = promptOf(1, 500);
    const leader = harness.submit("leader", [...head, 1, 2]);
    harness.submit("follower", [...head, 3, 4]);
    await harness.until(() => harness.of("leader").filter((event) => event.kind === "prefill").length >= 4);
    harness.engine.cancel(leader);
    const stopped = await harness.outcome("leader");
    const follower = await harness.outcome("follower");
    expect(follower.result?.cachedTokens).toBe(stopped.result?.computedTokens);
    expect(follower.tokens).toEqual(await fresh([...head, 3, 4]));
  });

  test("who waits for a head does not keep others out", async () => {
    const harness = new EngineHarness({ asyncFromRows: 1, laneTokens: 1024, laneCount: 2 }, { maxConcurrency: 2 }, 64);
    const head = promptOf(1, 800);
    harness.submit("leader", [...head, 1, 2]);
    harness.submit("follower", [...head, 3, 4]);
    const other = await harness.run("other", promptOf(200, 20));
    expect(other.errorCode).toBeNull();
    const admitted = harness.events.filter((event) => event.kind === "admitted").map((event) => event.id);
    expect(admitted).toEqual(["leader", "other", "follower"].slice(0, admitted.length));
    await harness.outcome("follower");
  });

  test("namespaces never share, neither lanes nor pages", async () => {
    const harness = new EngineHarness({ laneCount: 1, laneTokens: 1024 }, { maxConcurrency: 1 }, 64);
    await harness.run("alice", promptOf(1, 300), { namespace: "alice" });
    expect((await harness.run("bob", promptOf(1, 300), { namespace: "bob" })).result).toMatchObject({
      cachedTokens: 0,
      possibleTokens: 0,
    });
    expect((await harness.run("again", promptOf(1, 300), { namespace: "alice" })).result?.cachedTokens).toBe(299);
  });

  test("a waiting request's pages are not evicted under it", async () => {
    const harness = new EngineHarness({ laneCount: 1, laneTokens: 1024, asyncFromRows: 1 }, { maxConcurrency: 1 }, 6);
    await harness.run("session", promptOf(1, 320));
    await harness.run("push out", promptOf(90, 100));
    harness.submit("runs", promptOf(150, 300), { maxTokens: 20 });
    const back = harness.submit("back", promptOf(1, 330));
    await harness.outcome("runs");
    const outcome = await harness.outcome(back);
    expect(outcome.result?.cachedTokens).toBe(320);
    expect(outcome.tokens).toEqual(await fresh(promptOf(1, 330)));
    expect(harness.engine.status().store?.openLeases).toBe(0);
  });
});

test("whatever arrives, branches and is cancelled, texts are those of a fresh engine and nothing is leaked", async () => {
  const step = fc.record({
    branch: fc.array(fc.nat(2), { minLength: 1, maxLength: 5 }),
    tail: fc.integer({ min: 1, max: 70 }),
    namespace: fc.constantFrom("", "x"),
    cancel: fc.boolean(),
    wait: fc.boolean(),
  });
  const promptFor = (branch: number[], tail: number): number[] => [
    ...branch.flatMap((choice) => promptOf(choice * 50, 40)),
    ...promptOf(11, tail),
  ];
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 25 }),
      fc.integer({ min: 1, max: 3 }),
      fc.nat(12),
      async (steps, laneCount, hostPages) => {
        const harness = new EngineHarness(
          { laneCount, laneTokens: 512, asyncFromRows: 2, microbatchRows: 8 },
          { maxConcurrency: laneCount, maxPendingRequests: 30, prefillChunkTokens: 24 },
          hostPages,
        );
        const prompts = new Map<RequestId, number[]>();
        for (const { branch, tail, namespace, cancel, wait } of steps) {
          const prompt = promptFor(branch, tail);
          const id = harness.submit(`r${prompts.size}`, prompt, { namespace, maxTokens: 5 });
          prompts.set(id, prompt);
          if (wait) await new Promise<void>((resolve) => setImmediate(resolve));
          if (cancel) harness.engine.cancel(id);
          harness.clock.advance(500);
        }
        await harness.settle();
        for (const [id, prompt] of prompts) {
          const { tokens, result } = await harness.outcome(id);
          if (result?.reason === "length") expect(tokens).toEqual(await fresh(prompt, 5));
        }
        expect(harness.engine.status().store?.openLeases).toBe(0);
      },
    ),
    { numRuns: 100 },
  );
});
