/** What a stream does while nothing comes: early headers, comments, back-pressure, refusals that are still HTTP statuses. */

import { ManualClock } from "@kvasir/kit";
import { afterEach, describe, expect, it } from "vitest";
import { eventually, postJson, StreamCall, textOf } from "./support/http-client.ts";
import { type TestServer, type TestServerOptions, testServer } from "./support/test-server.ts";

const FOREVER = Number.POSITIVE_INFINITY;

describe("a stream", () => {
  let server: TestServer;
  const clock = new ManualClock();
  afterEach(async () => {
    await server.close();
    expect(server.internalErrors).toEqual([]);
  });

  async function start(options: TestServerOptions = {}): Promise<void> {
    server = await testServer({
      reply: () => "abcdefghij",
      engine: { maxConcurrency: 1, maxPendingRequests: 1 },
      clock,
      ...options,
    });
    server.backend().allow(0);
  }
  const call = (extra: object = {}) =>
    new StreamCall(`${server.url}/v1/chat/completions`, {
      messages: [{ role: "user", content: "x".repeat(150) }],
      stream: true,
      ...extra,
    });
  const prefilling = () => eventually(async () => (await server.generator.status()).prefilling === 1);

  it("has its headers as soon as it is admitted, before the first token", async () => {
    await start();
    const running = call();
    expect(await running.status()).toBe(200);
    expect(running.items).toEqual([]);
  });

  it("has its headers as soon as it is queued, and says so every two seconds", async () => {
    await start();
    const running = call();
    await running.status();
    const waiting = call();
    expect(await waiting.status()).toBe(200);
    for (let second = 1; second <= 6; second++) {
      clock.advance(2000);
      await waiting.until(() => waiting.comments.length >= second);
    }
    expect(waiting.comments).toContain("queued position 1");
    server.backend().allow(FOREVER);
    await running.toEnd();
    await waiting.toEnd();
    expect(textOf(waiting)).toBe("abcdefghij");
  });

  it("moves up when one before it leaves", async () => {
    await start({ engine: { maxConcurrency: 1, maxPendingRequests: 3 } });
    const running = call();
    await running.status();
    const waiting = [call(), call(), call()];
    for (const each of waiting) await each.status();
    const says = (index: number, comment: string) =>
      eventually(() => {
        clock.advance(1000);
        return waiting[index]?.comments.at(-1) === comment;
      });
    await says(2, "queued position 3");
    waiting[0]?.leave();
    await says(1, "queued position 1");
    await says(2, "queued position 2");
    expect(server.records.filter((record) => record.event === "queued").length).toBe(3);
  });

  it("tells how far its prompt is", async () => {
    await start();
    const running = call();
    await running.status();
    await prefilling();
    server.backend().allow(1);
    await eventually(() => server.backend().decodedRows.length === 1);
    await eventually(() => {
      clock.advance(1000);
      return running.comments.some((comment) => /^prefill 64\/\d+$/.test(comment));
    });
  });

  it("has its headers after a second and a half even if the engine says nothing", async () => {
    await start();
    const first = call({ n: 2 });
    await first.status();
    // The second choice waits, the first runs: both are known. A third request meets a full queue.
    const refused = call();
    expect(await refused.status()).toBe(429);
    expect((await refused.headers())["retry-after"]).toBe("5");
    expect((await refused.headers())["content-type"]).toBe("application/json; charset=utf-8");
  });

  it("refuses all choices when one of them finds no place", async () => {
    await start();
    const running = call();
    await running.status();
    const { status, body } = await postJson(`${server.url}/v1/chat/completions`, {
      messages: [{ role: "user", content: "b" }],
      n: 2,
      stream: true,
    });
    expect(status).toBe(429);
    expect(body.error).toMatchObject({ code: "queue_full", type: "rate_limit_error" });
    await eventually(async () => (await server.generator.status()).waiting === 0);
    server.backend().allow(FOREVER);
    await running.toEnd();
    expect(textOf(running)).toBe("abcdefghij");
  });

  it.each([
    [{ messages: [] }, 400],
    [{ max_tokens: -1 }, 400],
    [{ model: "other" }, 404],
    [{ max_tokens: 100_000 }, 400],
    [{ messages: [{ role: "user", content: "x".repeat(600) }] }, 400],
    [{ tools: [{}] }, 400],
  ])("answers %j with a status, not with a stream", async (body, status) => {
    await start();
    const refused = call(body);
    expect(await refused.status()).toBe(status);
    expect((await refused.headers())["content-type"]).toContain("application/json");
  });

  it("tells an expired wait as an error event after its headers, and as 503 without a stream", async () => {
    await start({ pendingTimeoutMs: 20 });
    const running = call();
    await running.status();
    const waiting = call();
    expect(await waiting.status()).toBe(200);
    await waiting.toEnd();
    expect(waiting.chunks()).toMatchObject([{ error: { code: "queue_timeout", type: "server_error" } }]);
    expect(waiting.doneCount).toBe(0);
    const { status, headers, body } = await postJson(`${server.url}/v1/chat/completions`, {
      messages: [{ role: "user", content: "b" }],
    });
    expect(status).toBe(503);
    expect(headers.get("retry-after")).toBe("10");
    expect(body.error).toMatchObject({ code: "queue_timeout" });
    expect(server.records.filter((record) => record.event === "rejected").length).toBe(2);
  });

  it("holds a generation whose reader does not read, while others go on", async () => {
    await start({ reply: () => "z".repeat(60_000), laneTokens: 65_536, engine: { maxConcurrency: 2, maxPendingRequests: 1 } });
    const slow = call({ logprobs: true, top_logprobs: 20 });
    await slow.status();
    slow.pause();
    server.backend().allow(FOREVER);
    // Its output stops growing: the socket is full, and the engine was told.
    let before = -1;
    await eventually(async () => {
      const { outputTokens } = (await server.generator.status()).counters;
      const settled = outputTokens === before && outputTokens > 600;
      before = outputTokens;
      await new Promise((resolve) => setTimeout(resolve, 100));
      return settled;
    });
    const { body } = await postJson(`${server.url}/v1/chat/completions`, {
      messages: [{ role: "user", content: "b" }],
      max_tokens: 5,
    });
    expect(body).toMatchObject({ choices: [{ message: { content: "zzzzz" } }] });
    expect(before).toBeLessThan(60_000);
    slow.leave();
    await eventually(() => server.records.some((record) => record.event === "cancelled"));
  });
});
