/** The engine dies, or the server is told to stop: what requests in flight see. */

import { CodedError, ManualClock } from "@kvasir/kit";
import { afterEach, describe, expect, it } from "vitest";
import { eventually, getJson, postJson, StreamCall, textOf } from "./support/http-client.ts";
import { heldBackend, type TestServer, type TestServerOptions, testServer } from "./support/test-server.ts";

const FOREVER = Number.POSITIVE_INFINITY;
const messages = [{ role: "user", content: "x" }];

describe("when the engine dies", () => {
  let server: TestServer;
  afterEach(async () => {
    await server.close();
    expect(server.internalErrors).toEqual([]);
  });

  async function start(options: TestServerOptions = {}): Promise<void> {
    server = await testServer({ reply: () => "abcdefghij", engine: { maxConcurrency: 1 }, ...options });
    server.backend().allow(0);
  }
  const chat = (body: object = {}) => postJson(`${server.url}/v1/chat/completions`, { messages, ...body });
  const stream = () => new StreamCall(`${server.url}/v1/chat/completions`, { messages, stream: true });
  const prefilling = () => eventually(async () => (await server.generator.status()).prefilling === 1);

  it("requests in flight end with an error and the next one works", async () => {
    await start();
    const running = stream();
    await running.status();
    await prefilling();
    server.backend().allow(3);
    await running.until(() => textOf(running).length === 3);
    const waiting = chat();
    await eventually(() => server.records.some((record) => record.event === "queued"));
    server.engines.crash();

    await running.toEnd();
    expect(running.chunks().at(-1)).toMatchObject({ error: { code: "engine_crashed", type: "server_error" } });
    expect(running.doneCount).toBe(0);
    expect(textOf(running)).toBe("abc");
    expect(await waiting).toMatchObject({ status: 500, body: { error: { code: "engine_crashed" } } });

    // No waiting on our side: a request waits for the restart by itself.
    expect(await chat()).toMatchObject({ status: 200, body: { choices: [{ message: { content: "abcdefghij" } }] } });
    expect(server.engines.backends.length).toBe(2);
    expect((await getJson(`${server.url}/health`)).body).toMatchObject({ status: "ok", state: "ready", engine_restarts: 1 });
    const terminal = server.records.filter(({ event }) =>
      ["finished", "failed", "cancelled", "rejected"].includes(String(event)),
    );
    expect(terminal.map(({ event, error_code }) => [event, error_code])).toEqual([
      ["failed", "engine_crashed"],
      ["failed", "engine_crashed"],
      ["finished", undefined],
    ]);
  });

  it("answers /health at once, /ready with 503, and requests with 503 once the wait is over", async () => {
    const clock = new ManualClock();
    await start({ supervisor: { clock, firstPauseMs: 60_000 } });
    server.engines.crash();
    await eventually(() => server.generator.state === "restarting");
    expect((await getJson(`${server.url}/health`)).body).toMatchObject({ status: "ok", state: "restarting" });
    const ready = await getJson(`${server.url}/ready`);
    expect(ready).toMatchObject({ status: 503, body: { error: { code: "engine_unavailable" } } });
    expect(ready.headers.get("retry-after")).toBe("5");
    const waiting = chat();
    await eventually(() => server.records.some((record) => record.event === "received"));
    await eventually(() => {
      clock.advance(1000);
      return clock.pendingTimers <= 1;
    });
    expect(await waiting).toMatchObject({ status: 503, body: { error: { code: "engine_unavailable" } } });
    expect((await getJson(`${server.url}/v1/models`)).status).toBe(200);
  });

  it("says that it starts until the first token is possible", async () => {
    server = await testServer({ start: false });
    for (const path of ["/ready", "/v1/models"]) {
      const answer = await getJson(server.url + path);
      expect(answer).toMatchObject({ status: 503, body: { error: { code: "engine_starting" } } });
      expect(answer.headers.get("retry-after")).toBe("2");
    }
    expect(await chat({ stream: true })).toMatchObject({ status: 503, body: { error: { code: "engine_starting" } } });
    expect((await getJson(`${server.url}/health`)).body).toMatchObject({ status: "ok", state: "starting" });
    await server.supervisor.start();
    expect((await getJson(`${server.url}/ready`)).body).toMatchObject({ status: "ready" });
    expect((await chat()).status).toBe(200);
  });

  it("says for good that it could not start", async () => {
    const failing = () => {
      throw new CodedError("kv_memory_insufficient", "too large");
    };
    server = await testServer({ start: false, makeBackend: failing });
    await expect(server.supervisor.start()).rejects.toMatchObject({ code: "kv_memory_insufficient" });
    expect((await getJson(`${server.url}/health`)).body).toMatchObject({ state: "failed" });
    expect(await chat()).toMatchObject({ status: 503, body: { error: { code: "engine_unavailable" } } });
  });

  it("one bad request fails alone", async () => {
    let fault = false;
    const makeBackend = () => {
      const backend = heldBackend({ reply: () => "abc" });
      const decode = backend.decode.bind(backend);
      backend.decode = async (batch) => {
        if (fault) {
          fault = false;
          throw new CodedError("decode_failed", "the device said no");
        }
        return decode(batch);
      };
      return backend;
    };
    await start({ makeBackend });
    server.backend().allow(FOREVER);
    fault = true;
    expect(await chat()).toMatchObject({ status: 500, body: { error: { code: "decode_failed" } } });
    expect(await chat()).toMatchObject({ status: 200 });
  });
});

describe("a server that closes", () => {
  it("takes no new connections, lets a short answer end, and cuts a long one with an error event", async () => {
    const server = await testServer({ reply: () => "abcdefghij", engine: { maxConcurrency: 2 } });
    server.backend().allow(0);
    const call = () => new StreamCall(`${server.url}/v1/chat/completions`, { messages, stream: true });
    const running = call();
    await running.status();
    const whole = postJson(`${server.url}/v1/chat/completions`, { messages });
    await eventually(async () => {
      const { waiting, prefilling } = await server.generator.status();
      return waiting + prefilling === 2;
    });
    const closing = server.server.close({ drainMs: 600_000 });
    await expect(fetch(`${server.url}/health`)).rejects.toThrow("fetch failed");
    server.backend().allow(4);
    await running.until(() => textOf(running).length >= 2);
    // A second call shortens the wait.
    const now = server.server.close({ drainMs: 0 });
    await running.toEnd();
    expect(running.chunks().at(-1)).toMatchObject({ error: { code: "shutting_down" } });
    expect(running.doneCount).toBe(0);
    expect(await whole).toMatchObject({ status: 503, body: { error: { code: "shutting_down" } } });
    await Promise.all([closing, now]);
    await server.supervisor.close(0);
    expect(server.records.filter(({ event }) => event === "failed").map(({ error_code }) => error_code)).toEqual([
      "shutting_down",
      "shutting_down",
    ]);
  });

  it("disconnects a client that does not read, when its time is over", async () => {
    const server = await testServer({ reply: () => "z".repeat(60_000), laneTokens: 65_536 });
    const stuck = new StreamCall(`${server.url}/v1/chat/completions`, {
      messages,
      stream: true,
      logprobs: true,
      top_logprobs: 20,
    });
    await stuck.status();
    stuck.pause();
    // Its socket is full once the engine holds it.
    let before = -1;
    await eventually(async () => {
      const { outputTokens } = (await server.generator.status()).counters;
      const settled = outputTokens === before && outputTokens > 600;
      before = outputTokens;
      await new Promise((resolve) => setTimeout(resolve, 50));
      return settled;
    });
    await server.server.close({ drainMs: 0 });
    await server.supervisor.close(0);
    expect(server.records.at(-1)).toMatchObject({ event: "failed", error_code: "shutting_down" });
  });

  it("waits for answers that end in time", async () => {
    const server = await testServer({ reply: () => "abcdefghij" });
    server.backend().allow(0);
    const running = new StreamCall(`${server.url}/v1/chat/completions`, { messages, stream: true });
    await running.status();
    const closing = server.server.close({ drainMs: 600_000 });
    server.backend().allow(FOREVER);
    await running.toEnd();
    expect(textOf(running)).toBe("abcdefghij");
    expect(running.doneCount).toBe(1);
    await closing;
    await server.supervisor.close(0);
  });

  it("refuses requests on connections that were open", async () => {
    const server = await testServer();
    server.backend().allow(0);
    const running = new StreamCall(`${server.url}/v1/chat/completions`, { messages, stream: true });
    await running.status();
    const { Agent, request } = await import("node:http");
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const get = () =>
      new Promise<number>((resolve, reject) => {
        request(`${server.url}/health`, { agent }, (response) => {
          response.resume();
          response.on("end", () => resolve(response.statusCode ?? 0));
        })
          .on("error", reject)
          .end();
      });
    expect(await get()).toBe(200);
    const closing = server.server.close({ drainMs: 600_000 });
    const after = await get().catch(() => 0);
    expect([0, 503]).toContain(after);
    agent.destroy();
    server.backend().allow(FOREVER);
    await running.toEnd();
    await closing;
    await server.supervisor.close(0);
  });
});
