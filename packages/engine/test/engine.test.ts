import { expect, test } from "vitest";
import type { Batch } from "../src/batch.ts";
import { EngineHarness, greedy, promptOf } from "./support/engine-harness.ts";

const text = (characters: string): Uint8Array => new TextEncoder().encode(characters);

test("concurrent greedy requests write what each writes alone", async () => {
  const prompts = [promptOf(1, 40), promptOf(90, 3), promptOf(200, 70), promptOf(30, 17), promptOf(77, 55)];
  const alone = [];
  for (const prompt of prompts) alone.push((await new EngineHarness().run("solo", prompt, { maxTokens: 20 })).tokens);
  const crowd = new EngineHarness();
  const together = await Promise.all(prompts.map((prompt, index) => crowd.run(`r${index}`, prompt, { maxTokens: 20 })));
  expect(together.map((outcome) => outcome.tokens)).toEqual(alone);
  await crowd.settle();
});

test("requests beyond the concurrency wait in order of arrival", async () => {
  const harness = new EngineHarness({}, { maxConcurrency: 1 });
  for (const id of ["a", "b", "c"]) harness.submit(id, promptOf(id.charCodeAt(0), 5));
  await Promise.all(["a", "b", "c"].map((id) => harness.outcome(id)));
  const admitted = harness.events.filter((event) => event.kind === "admitted").map((event) => event.id);
  expect(admitted).toEqual(["a", "b", "c"]);
  expect(harness.of("c")[0]).toEqual({ kind: "queued", id: "c", position: 2 });
});

test("a full queue refuses the next request and nothing else", async () => {
  const harness = new EngineHarness({}, { maxConcurrency: 1, maxPendingRequests: 1 });
  for (const id of ["runs", "waits", "refused"]) harness.submit(id, promptOf(5, 5));
  expect((await harness.outcome("refused")).errorCode).toBe("queue_full");
  expect((await harness.outcome("runs")).errorCode).toBeNull();
  expect((await harness.outcome("waits")).errorCode).toBeNull();
});

test("a request that waits too long fails alone, at its own time", async () => {
  const harness = new EngineHarness({ asyncFromRows: 1 }, { maxConcurrency: 1 });
  harness.submit("runs", promptOf(5, 5), { maxTokens: 100 });
  harness.submit("impatient", promptOf(6, 5), { pendingTimeoutMs: 1000 });
  harness.submit("patient", promptOf(7, 5));
  harness.clock.advance(999);
  expect(harness.ended("impatient")).toBe(false);
  harness.clock.advance(1);
  const outcome = await harness.outcome("impatient");
  expect(outcome.errorCode).toBe("queue_timeout");
  expect(outcome.result?.timings.queueMs).toBe(1000);
  expect((await harness.outcome("runs")).tokens).toHaveLength(100);
  expect((await harness.outcome("patient")).errorCode).toBeNull();
  expect(harness.clock.pendingTimers).toBe(0);
});

test("the next turn of a session computes only what is new", async () => {
  const harness = new EngineHarness();
  const first = await harness.run("turn1", promptOf(3, 50));
  const prompt = [...promptOf(3, 50), ...first.tokens, ...promptOf(9, 10)];
  const second = await harness.run("turn2", prompt);
  // The last sampled token of a turn is never decoded, so it is computed with the next prompt.
  expect(second.result).toMatchObject({ cachedTokens: 57, computedTokens: 11, promptTokens: 68, resetReason: "none" });
  const fresh = await new EngineHarness().run("fresh", prompt);
  expect(second.tokens).toEqual(fresh.tokens);
  await harness.settle();
});

test("a repeated prompt computes one token and writes the same", async () => {
  const harness = new EngineHarness();
  const first = await harness.run("first", promptOf(3, 50));
  const again = await harness.run("again", promptOf(3, 50));
  expect(again.result).toMatchObject({ cachedTokens: 49, computedTokens: 1 });
  expect(again.tokens).toEqual(first.tokens);
});

test("a prompt rewritten in the middle keeps what stands before the edit and says where", async () => {
  const harness = new EngineHarness();
  await harness.run("first", promptOf(3, 50));
  const rewritten = promptOf(3, 50);
  rewritten[40] = 255;
  const outcome = await harness.run("edited", rewritten);
  expect(outcome.result).toMatchObject({ cachedTokens: 40, resetReason: "rewritten", divergedAt: 40 });
  expect(outcome.tokens).toEqual((await new EngineHarness().run("fresh", rewritten)).tokens);
});

test("two sessions that alternate do not cost each other their lanes", async () => {
  const harness = new EngineHarness({ laneCount: 2 }, { maxConcurrency: 2 });
  const sessions = [promptOf(3, 30), promptOf(120, 30)];
  for (let turn = 0; turn < 6; turn++) {
    for (const [index, session] of sessions.entries()) {
      const outcome = await harness.run(`s${index}t${turn}`, session, { maxTokens: 4 });
      if (turn > 0) expect(outcome.result?.cachedTokens).toBeGreaterThanOrEqual(session.length - 5);
      session.push(...outcome.tokens, turn);
    }
  }
});

test("memory that cannot go back is recomputed, never resumed in a wrong state", async () => {
  const harness = new EngineHarness({ resume: "frontier" });
  const first = await harness.run("first", promptOf(3, 50));
  const again = await harness.run("again", promptOf(3, 50));
  expect(again.result).toMatchObject({ cachedTokens: 0, resetReason: "capacity" });
  expect(again.tokens).toEqual(first.tokens);
  const longer = [...promptOf(3, 50), ...again.tokens, 1, 2, 3];
  const appended = await harness.run("appended", longer);
  expect(appended.result?.cachedTokens).toBe(57);
  expect(appended.tokens).toEqual((await new EngineHarness().run("fresh", longer)).tokens);
});

test("generation ends at the limit, at the window, at an end token", async () => {
  const harness = new EngineHarness({ laneTokens: 64 });
  expect((await harness.run("limit", promptOf(1, 10), { maxTokens: 5 })).result).toMatchObject({
    reason: "length",
    outputTokens: 5,
  });
  expect((await harness.run("window", promptOf(2, 60), { maxTokens: 50 })).result).toMatchObject({
    reason: "window",
    outputTokens: 4,
  });
  expect((await harness.run("full", promptOf(2, 63), { maxTokens: 50 })).result).toMatchObject({
    reason: "window",
    outputTokens: 1,
  });
  const ending = new EngineHarness({ nextToken: (tokens) => (tokens.length >= 13 ? 256 : null) });
  const ended = await ending.run("end", promptOf(1, 10));
  expect(ended.result).toMatchObject({ reason: "end", outputTokens: 4 });
  expect(ended.tokens).toHaveLength(3);
  expect((await ending.run("on", promptOf(1, 10), { ignoreEos: true })).result).toMatchObject({
    reason: "length",
    outputTokens: 8,
  });
});

test("zero output tokens prefill only, and the next request finds the prompt", async () => {
  const harness = new EngineHarness();
  expect((await harness.run("warm", promptOf(1, 40), { maxTokens: 0 })).result).toMatchObject({
    reason: "length",
    outputTokens: 0,
    computedTokens: 40,
  });
  expect((await harness.run("again", promptOf(1, 40), { maxTokens: 0 })).result).toMatchObject({
    cachedTokens: 40,
    computedTokens: 0,
  });
  expect((await harness.run("use", promptOf(1, 40))).result).toMatchObject({ cachedTokens: 39 });
});

test("a stop text ends the generation and is not written", async () => {
  const pieces = ["a", "b", "c", "EN", "D", ""].map(text);
  const script = [0, 1, 3, 4, 2];
  const harness = new EngineHarness({ pieces, nextToken: (tokens) => script[tokens.length - 2] ?? 0 });
  const outcome = await harness.run("stop", [0, 1], { stop: ["END"], maxTokens: 20 });
  expect(outcome.text).toBe("ab");
  expect(outcome.result).toMatchObject({ reason: "stop", stopText: "END", outputTokens: 4 });
});

test("a cancelled request frees its place: waiting, mid-prefill, mid-decode", async () => {
  const harness = new EngineHarness({ asyncFromRows: 1, laneCount: 1 }, { maxConcurrency: 1, prefillChunkTokens: 8 });
  const decoding = harness.submit("decoding", promptOf(1, 5), { maxTokens: 200 });
  const waiting = harness.submit("waiting", promptOf(2, 5));
  harness.engine.cancel(waiting);
  expect((await harness.outcome("waiting")).result).toMatchObject({ reason: "cancelled", lane: null });
  await harness.until(() => harness.of("decoding").filter((event) => event.kind === "output").length >= 3);
  harness.engine.cancel(decoding);
  expect((await harness.outcome("decoding")).result?.reason).toBe("cancelled");
  const prefilling = harness.submit("prefilling", promptOf(3, 200));
  await harness.until(() => harness.of("prefilling").some((event) => event.kind === "prefill"));
  harness.engine.cancel(prefilling);
  const stopped = await harness.outcome("prefilling");
  expect(stopped.result?.reason).toBe("cancelled");
  expect(stopped.result?.computedTokens).toBeLessThan(200);
  const retried = await harness.run("retried", promptOf(3, 200));
  expect(retried.result?.cachedTokens).toBe(stopped.result?.computedTokens);
  expect(retried.tokens).toEqual((await new EngineHarness().run("fresh", promptOf(3, 200))).tokens);
  await harness.settle();
});

test("an aborted chunk keeps what was stored and continues right", async () => {
  const harness = new EngineHarness({ asyncFromRows: 2, microbatchRows: 4 }, { prefillChunkTokens: 32 });
  const id = harness.submit("aborted", promptOf(3, 60));
  await harness.until(() => harness.of("aborted").some((event) => event.kind === "prefill"));
  await new Promise<void>((resolve) => setImmediate(resolve));
  harness.engine.cancel(id);
  await harness.outcome("aborted");
  await harness.settle();
  const again = await harness.run("again", promptOf(3, 60));
  expect(again.result?.cachedTokens).toBeGreaterThanOrEqual(32);
  expect(again.tokens).toEqual((await new EngineHarness().run("fresh", promptOf(3, 60))).tokens);
});

test("unknown and repeated cancellations are harmless", async () => {
  const harness = new EngineHarness();
  const id = harness.submit("once", promptOf(1, 5));
  harness.engine.cancel("nobody" as typeof id);
  await harness.outcome("once");
  harness.engine.cancel(id);
  expect(harness.of("once").filter((event) => event.kind === "finished")).toHaveLength(1);
});

test("a failed step ends the requests in it, empties their lanes and serves the next", async () => {
  const harness = new EngineHarness({ faultAt: (call) => (call === 3 ? "device-lost" : null) });
  harness.submit("one", promptOf(1, 5), { maxTokens: 20 });
  harness.submit("two", promptOf(2, 5), { maxTokens: 20 });
  expect((await harness.outcome("one")).errorCode).toBe("decode_failed");
  expect((await harness.outcome("two")).errorCode).toBe("decode_failed");
  await harness.settle();
  const after = await harness.run("after", promptOf(1, 5));
  expect(after.result?.cachedTokens).toBe(0);
  expect(after.tokens).toEqual((await new EngineHarness().run("fresh", promptOf(1, 5))).tokens);
  expect(harness.fatal).toBeNull();
});

test("a backend that fails again and again ends the engine after failing every request", async () => {
  const harness = new EngineHarness({ faultAt: () => "refused" }, { maxConcurrency: 1 });
  for (const id of ["a", "b", "c", "d"]) harness.submit(id, promptOf(1, 5));
  for (const id of ["a", "b", "c", "d"]) expect((await harness.outcome(id)).errorCode).toBe("decode_failed");
  expect(harness.fatal).not.toBeNull();
});

test("a request that the engine cannot hold is refused before it queues", async () => {
  const harness = new EngineHarness({ laneTokens: 64 });
  expect((await harness.run("long", promptOf(1, 64))).errorCode).toBe("context_length_exceeded");
  expect((await harness.run("empty", [])).errorCode).toBe("invalid_value");
  expect((await harness.run("foreign", [1, 2, 999])).errorCode).toBe("invalid_value");
  expect((await harness.run("negative", [-1])).errorCode).toBe("invalid_value");
  expect(harness.backend.calls).toBe(0);
});

test("a slow reader holds its own stream only", async () => {
  const harness = new EngineHarness();
  const slow = harness.submit("slow", promptOf(1, 5), { maxTokens: 30 });
  await harness.until(() => harness.of("slow").some((event) => event.kind === "output"));
  harness.engine.setPaused(slow, true);
  const fast = await harness.run("fast", promptOf(2, 5), { maxTokens: 30 });
  expect(fast.tokens).toHaveLength(30);
  const calls = harness.backend.calls;
  await new Promise<void>((resolve) => setImmediate(resolve));
  expect(harness.ended("slow")).toBe(false);
  expect(harness.backend.calls).toBe(calls);
  harness.engine.setPaused(slow, false);
  const outcome = await harness.outcome("slow");
  expect(outcome.tokens).toEqual((await new EngineHarness().run("fresh", promptOf(1, 5), { maxTokens: 30 })).tokens);
});

test("a long prompt that arrives never stretches a running stream's gap beyond the target", async () => {
  const gaps: number[] = [];
  const harness = new EngineHarness(
    (clock) => {
      let last: number | null = null;
      return {
        laneTokens: 6000,
        batchTokens: 512,
        cost: { clock, perCallMs: 5, perRowMs: 1, perDepthMs: 0.0005 },
        onDecode: (batch: Batch) => {
          const decodes = Array.from(batch.lanes.subarray(0, batch.rows)).includes(0);
          if (decodes && last !== null) gaps.push(clock.monotonicMs() - last);
          last = decodes ? clock.monotonicMs() : last;
        },
      };
    },
    { itlTargetMs: 100, prefillChunkTokens: 512 },
  );
  await harness.engine.warmUp();
  harness.submit("stream", promptOf(1, 5), { maxTokens: 150 });
  await harness.until(() => harness.of("stream").filter((event) => event.kind === "output").length >= 3);
  await harness.run("long", promptOf(100, 5000), { maxTokens: 1 });
  await harness.outcome("stream");
  expect(Math.max(...gaps)).toBeLessThanOrEqual(110);
});

test("a short warm turn does not wait for a long cold prompt", async () => {
  const harness = new EngineHarness(
    (clock) => ({ laneTokens: 6000, batchTokens: 256, cost: { clock, perCallMs: 5, perRowMs: 1 } }),
    { prefillChunkTokens: 256 },
  );
  harness.submit("long", promptOf(1, 5000), { maxTokens: 1 });
  await harness.until(() => harness.of("long").some((event) => event.kind === "prefill"));
  const short = await harness.run("short", promptOf(100, 50), { maxTokens: 1 });
  expect(harness.ended("long")).toBe(false);
  expect(short.result?.timings.prefillMs).toBeLessThan(600);
});

test("logprobs come with every token, the most likely first", async () => {
  const outcome = new EngineHarness();
  await outcome.run("logprobs", promptOf(1, 5), { topLogprobs: 3, maxTokens: 4 });
  const entries = outcome.of("logprobs").flatMap((event) => (event.kind === "output" ? (event.logprobs ?? []) : []));
  expect(entries).toHaveLength(4);
  for (const entry of entries) {
    expect(entry.top).toHaveLength(3);
    expect(entry.top[0]).toMatchObject({ token: entry.token, logprob: entry.logprob });
    expect(entry.logprob).toBeLessThanOrEqual(0);
  }
});

test("the same seed writes the same, another seed something else", async () => {
  const sampling = { ...greedy, temperature: 1 };
  const write = async (seed: number): Promise<number[]> =>
    (await new EngineHarness().run("r", promptOf(1, 5), { sampling: { ...sampling, seed }, maxTokens: 30 })).tokens;
  expect(await write(7)).toEqual(await write(7));
  expect(await write(7)).not.toEqual(await write(8));
});

test("draining ends what was taken and refuses what comes after", async () => {
  const harness = new EngineHarness();
  harness.submit("taken", promptOf(1, 5), { maxTokens: 30 });
  const drained = harness.engine.drain();
  expect((await harness.run("late", promptOf(2, 5))).errorCode).toBe("shutting_down");
  await drained;
  expect(harness.ended("taken")).toBe(true);
});

test("closing cancels everything and closes the backend", async () => {
  const harness = new EngineHarness({ asyncFromRows: 1 }, { maxConcurrency: 1 });
  harness.submit("runs", promptOf(1, 5), { maxTokens: 200 });
  harness.submit("waits", promptOf(2, 5));
  await harness.engine.close();
  expect((await harness.outcome("runs")).result?.reason).toBe("cancelled");
  expect((await harness.outcome("waits")).result?.reason).toBe("cancelled");
  expect(harness.backend.closed).toBe(true);
});
