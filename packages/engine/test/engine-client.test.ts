import { CodedError, type RequestId } from "@kvasir/kit";
import { describe, expect, test } from "vitest";
import type { Channel } from "../src/ipc/channel.ts";
import { EngineClient } from "../src/ipc/engine-client.ts";
import { memoryChannelPair } from "../src/ipc/memory-channel.ts";
import { type ChildMessage, type ParentMessage, PROTOCOL_VERSION } from "../src/protocol.ts";
import type { EngineEvent } from "../src/request.ts";
import { EngineHarness } from "./support/engine-harness.ts";
import { IpcHarness, requestOf, submit, turns } from "./support/ipc-harness.ts";

const failedWith = (code: string) => ({ kind: "failed", error: { code } });
const endless = { maxTokens: 200 };

describe("a request over the channel", () => {
  test("gets the events that the engine published, in order", async () => {
    const prompt = Int32Array.from({ length: 50 }, (_, index) => index);
    const direct = new EngineHarness();
    await direct.run("a", prompt, { topLogprobs: 2, ignoreEos: true });
    const client = await new IpcHarness().connect();
    const log = submit(client, "a", { promptTokens: prompt, topLogprobs: 2 });
    await log.end();
    expect(log.events.length).toBeGreaterThan(8);
    expect(log.events).toEqual(direct.of("a"));
    expect(client.inFlight).toBe(0);
  });

  test("is never answered inside submit", async () => {
    const client = await new IpcHarness({ engine: { maxPendingRequests: 0 } }).connect();
    const log = submit(client, "a", { promptTokens: new Int32Array(0) });
    expect(log.events).toEqual([]);
    await log.end();
    expect(log.events).toMatchObject([failedWith("invalid_value")]);
  });

  test("ends when it is cancelled; late and unknown ids are harmless", async () => {
    const client = await new IpcHarness().connect();
    const log = submit(client, "a", endless);
    await log.until(() => log.tokens.length >= 3);
    client.cancel("unknown" as RequestId);
    client.consumed("unknown" as RequestId, 5);
    client.cancel("a" as RequestId);
    await log.end();
    expect(log.last).toMatchObject({ kind: "finished", result: { reason: "cancelled" } });
    const count = log.events.length;
    client.cancel("a" as RequestId);
    client.consumed("a" as RequestId, 5);
    const other = submit(client, "b");
    await other.end();
    expect(log.events).toHaveLength(count);
    expect(other.tokens).toHaveLength(8);
  });

  test("is disturbed neither by another one's listener that throws nor by events of one that has ended", async () => {
    let deliver: (message: ChildMessage) => void = () => {};
    const channel: Channel<ParentMessage, ChildMessage> = {
      send: () => true,
      onMessage: (listener) => {
        deliver = listener;
        return () => {};
      },
      onClose: () => () => {},
      close: () => {},
    };
    const opening = EngineClient.open(channel, {});
    deliver({ kind: "opened", version: PROTOCOL_VERSION, facts: new IpcHarness().backend.facts });
    const client = await opening;
    client.submit(requestOf("throws"), () => {
      throw new Error("listener");
    });
    const log = submit(client, "sound");
    const output = (id: string): EngineEvent => ({ kind: "output", id: id as RequestId, text: "x", tokens: [1] });
    expect(() => deliver({ kind: "events", events: [output("ended"), output("throws"), output("sound")] })).toThrow("listener");
    expect(log.events).toEqual([output("sound")]);
  });
});

describe("opening", () => {
  test("tells progress, then the facts", async () => {
    const harness: IpcHarness = new IpcHarness({
      open: (config, hooks) => {
        hooks.progress(0.5);
        hooks.progress(1);
        return harness.open(config, hooks);
      },
    });
    const fractions: number[] = [];
    const client = await harness.connect({ onProgress: (fraction) => fractions.push(fraction) });
    expect(fractions).toEqual([0.5, 1]);
    expect(client.facts).toEqual(harness.backend.facts);
  });

  test("passes the error that the engine could not open with", async () => {
    const harness = new IpcHarness({
      open: () => Promise.reject(new CodedError("kv_memory_insufficient", "8 GiB asked, 4 GiB there.", { param: "context" })),
    });
    await expect(harness.connect()).rejects.toMatchObject({
      code: "kv_memory_insufficient",
      message: "8 GiB asked, 4 GiB there.",
      param: "context",
    });
    await harness.served;
  });

  test("calls any other error a failed start", async () => {
    const harness = new IpcHarness({ open: () => Promise.reject(new Error("boom")) });
    await expect(harness.connect()).rejects.toMatchObject({
      code: "engine_start_failed",
      message: "The engine could not start: boom",
    });
  });

  test("refuses a server of another version", async () => {
    const harness = new IpcHarness();
    const answers: ChildMessage[] = [];
    harness.parent.onMessage((message) => answers.push(message));
    harness.parent.send({ kind: "open", version: 99, config: {} });
    await harness.served;
    await turns(1);
    expect(answers).toMatchObject([
      {
        kind: "open-failed",
        error: { code: "engine_start_failed", message: expect.stringContaining("engine protocol 99, this one 1") },
      },
    ]);
  });

  test("refuses an engine of another version", async () => {
    const harness = new IpcHarness();
    const [parent, child] = memoryChannelPair<ParentMessage, ChildMessage>();
    const opening = EngineClient.open(parent, {});
    child.send({ kind: "opened", version: 2, facts: harness.backend.facts });
    await expect(opening).rejects.toMatchObject({
      code: "engine_start_failed",
      message: expect.stringContaining("engine protocol 2"),
    });
    expect(child.send({ kind: "closed" })).toBe(false);
  });

  test("fails when the engine ends before it answers, or has ended already", async () => {
    const [parent, child] = memoryChannelPair<ParentMessage, ChildMessage>();
    const opening = EngineClient.open(parent, {});
    child.close();
    await expect(opening).rejects.toMatchObject({ code: "engine_start_failed" });
    await expect(EngineClient.open(parent, {})).rejects.toMatchObject({ code: "engine_start_failed" });
  });

  test("a request that comes before the engine is there fails with engine_starting", async () => {
    const harness = new IpcHarness();
    const answers: ChildMessage[] = [];
    harness.parent.onMessage((message) => answers.push(message));
    harness.parent.send({ kind: "submit", request: requestOf("early") });
    await turns(1);
    expect(answers).toMatchObject([{ kind: "events", events: [failedWith("engine_starting")] }]);
  });
});

describe("an engine that is lost", () => {
  test("ends every request in flight once, with what is known, and nothing after it", async () => {
    const harness = new IpcHarness({ engine: { maxConcurrency: 1 } });
    const client = await harness.connect();
    const running = submit(client, "running", endless);
    const waiting = submit(client, "waiting");
    await running.until(() => running.tokens.length >= 4);
    const outcomes: boolean[] = [];
    client.onClose((expected) => outcomes.push(expected));
    const status = client.status();
    harness.child.close();
    await expect(status).rejects.toMatchObject({ code: "engine_unavailable" });
    await waiting.end();
    for (const log of [running, waiting]) {
      expect(log.events.filter((event) => event.kind === "failed")).toHaveLength(1);
      expect(log.last).toMatchObject(failedWith("engine_crashed"));
    }
    expect(running.last).toMatchObject({
      result: { promptTokens: 3, computedTokens: 3, outputTokens: running.tokens.length, lane: 0 },
    });
    expect(outcomes).toEqual([false]);
    const counts = [running.events.length, waiting.events.length];
    await harness.served;
    await turns(5);
    expect([running.events.length, waiting.events.length]).toEqual(counts);
  });

  test("takes no more requests: they fail with engine_unavailable", async () => {
    const harness = new IpcHarness();
    const client = await harness.connect();
    harness.child.close();
    await turns(1);
    const log = submit(client, "late");
    await log.end();
    expect(log.events).toMatchObject([failedWith("engine_unavailable")]);
    await expect(client.status()).rejects.toMatchObject({ code: "engine_unavailable" });
    client.cancel("late" as RequestId);
    await client.close(0);
    const outcomes: boolean[] = [];
    client.onClose((expected) => outcomes.push(expected));
    await turns(1);
    expect(outcomes).toHaveLength(1);
  });

  test("notices a lost server and closes itself", async () => {
    const harness = new IpcHarness();
    const client = await harness.connect();
    const log = submit(client, "a", endless);
    await log.until(() => log.tokens.length >= 2);
    harness.parent.close();
    await harness.served;
    expect(harness.backend.closed).toBe(true);
    expect(harness.clock.pendingTimers).toBe(0);
  });
});

describe("closing", () => {
  test("lets running requests end, refuses new ones, frees everything", async () => {
    const harness = new IpcHarness();
    const client = await harness.connect();
    const running = submit(client, "running", { maxTokens: 40 });
    await running.until(() => running.tokens.length >= 1);
    const expected: boolean[] = [];
    client.onClose((wasExpected) => expected.push(wasExpected));
    const closed = client.close(60_000);
    const refused = submit(client, "refused");
    await closed;
    expect(running.last).toMatchObject({ kind: "finished", result: { reason: "length", outputTokens: 40 } });
    expect(refused.events).toMatchObject([failedWith("shutting_down")]);
    expect(harness.backend.closed).toBe(true);
    expect(expected).toEqual([true]);
    await harness.served;
    expect(harness.clock.pendingTimers).toBe(0);
  });

  test("cancels what still runs when the drain is over", async () => {
    const harness = new IpcHarness({ serve: { readerWindow: { highTokens: 8, lowTokens: 4 } } });
    const client = await harness.connect();
    const log = submit(client, "held", endless);
    await log.until(() => log.tokens.length >= 8);
    const closed = client.close(5000);
    await turns(5);
    expect(log.ended).toBe(false);
    harness.clock.advance(5000);
    await closed;
    expect(log.last).toMatchObject({ kind: "finished", result: { reason: "cancelled" } });
  });

  test("a second close shortens the drain", async () => {
    const harness = new IpcHarness({ serve: { readerWindow: { highTokens: 8, lowTokens: 4 } } });
    const client = await harness.connect();
    const log = submit(client, "held", endless);
    await log.until(() => log.tokens.length >= 8);
    const first = client.close(600_000);
    await turns(3);
    const second = client.close(1000);
    await turns(3);
    harness.clock.advance(1000);
    await Promise.all([first, second]);
    expect(log.last).toMatchObject({ kind: "finished", result: { reason: "cancelled" } });
    await harness.served;
    expect(harness.clock.pendingTimers).toBe(0);
  });

  test("while the engine still opens waits for it and closes it", async () => {
    let finishOpening: () => void = () => {};
    let signal: AbortSignal | undefined;
    const harness: IpcHarness = new IpcHarness({
      open: async (config, hooks) => {
        signal = hooks.signal;
        await new Promise<void>((resolve) => {
          finishOpening = resolve;
        });
        return harness.open(config, hooks);
      },
    });
    const opening = harness.connect();
    harness.parent.send({ kind: "close", drainMs: 0 });
    await turns(1);
    expect(signal?.aborted).toBe(true);
    finishOpening();
    await expect(opening).rejects.toMatchObject({ code: "engine_start_failed" });
    await harness.served;
    expect(harness.backend.closed).toBe(true);
  });

  test("status answers while requests run", async () => {
    const client = await new IpcHarness().connect();
    const log = submit(client, "a", endless);
    await log.until(() => log.tokens.length >= 1);
    expect(await client.status()).toMatchObject({ waiting: 0, prefilling: 0, decoding: 1 });
    await client.close(0);
  });
});
