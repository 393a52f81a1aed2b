/** A client that leaves frees its place, whatever its request was doing. Real sockets, real engine, decode calls by permission. */

import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { eventually, getJson, postJson, StreamCall, textOf } from "./support/http-client.ts";
import { type TestServer, testServer } from "./support/test-server.ts";

const FOREVER = Number.POSITIVE_INFINITY;

describe("a client that leaves", () => {
  let server: TestServer;
  beforeEach(async () => {
    server = await testServer({ reply: () => "abcdefghij".repeat(20), engine: { maxConcurrency: 1 }, laneCount: 2 });
    server.backend().allow(0);
  });
  afterEach(async () => {
    await server.close();
    expect(server.internalErrors).toEqual([]);
  });

  const body = (name: string, stream: boolean) => ({ messages: [{ role: "user", content: name }], stream });
  const call = (name: string, stream = true) => new StreamCall(`${server.url}/v1/chat/completions`, body(name, stream));
  const status = () => server.generator.status();
  const recordsOf = (event: string) => server.records.filter((record) => record.event === event);
  const gauge = async (name: string) => {
    const text = await (await fetch(`${server.url}/metrics`)).text();
    return Number(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, "m").exec(text)?.[1]);
  };

  it.each([true, false])("while decoding frees its lane before the next token (stream %s)", async (stream) => {
    const leaver = call("leaver", stream);
    await eventually(async () => (await status()).prefilling === 1);
    server.backend().allow(4);
    await eventually(() => server.backend().decodedRows.length >= 4);
    leaver.leave();
    await eventually(() => recordsOf("cancelled").length === 1);
    expect(recordsOf("cancelled")[0]).toMatchObject({ phase: "decode", choices: [{ output_tokens: expect.any(Number) }] });
    expect((await status()).decoding).toBe(0);
    // The held call was aborted: nothing more was computed.
    expect(server.backend().decodedRows.length).toBeLessThanOrEqual(5);
  });

  it.each([true, false])("while its prompt is computed frees its lane at once (stream %s)", async (stream) => {
    const leaver = call(`leaver ${"x".repeat(300)}`, stream);
    await eventually(async () => (await status()).prefilling === 1);
    server.backend().allow(1);
    await eventually(() => server.backend().decodedRows.length === 1);
    leaver.leave();
    await eventually(() => recordsOf("cancelled").length === 1);
    expect(recordsOf("cancelled")[0]).toMatchObject({ phase: "prefill" });
    expect((await status()).lanes.filter((lane) => lane.state === "running")).toEqual([]);
    expect(await gauge("vllm:kv_cache_usage_perc")).toBe(0);
  });

  it.each([true, false])("while it waits is never computed, and disturbs nobody (stream %s)", async (stream) => {
    const running = call("running");
    await eventually(async () => (await status()).prefilling === 1);
    const leaver = call("leaver", stream);
    await eventually(() => recordsOf("queued").length === 1);
    leaver.leave();
    await eventually(() => recordsOf("cancelled").length === 1);
    expect(recordsOf("cancelled")[0]).toMatchObject({ phase: "queued", choices: [{ lane: null, output_tokens: 0 }] });
    expect((await status()).waiting).toBe(0);
    server.backend().allow(FOREVER);
    await running.toEnd();
    expect(textOf(running)).toBe("abcdefghij".repeat(20));
    expect(recordsOf("admitted").length).toBe(1);
    expect(await gauge("kvasir_cancelled_total")).toBe(1);
  });

  it("with several choices frees all of them", async () => {
    const leaver = new StreamCall(`${server.url}/v1/chat/completions`, { ...body("leaver", true), n: 3 });
    await eventually(async () => (await status()).waiting === 2);
    leaver.leave();
    await eventually(() => recordsOf("cancelled").length === 1);
    expect(await status()).toMatchObject({ waiting: 0, prefilling: 0, decoding: 0 });
  });

  it("leaves what it had computed to the next request", async () => {
    const prompt = `session ${"y".repeat(200)}`;
    const leaver = call(prompt);
    await eventually(async () => (await status()).prefilling === 1);
    server.backend().allow(2);
    await eventually(() => server.backend().decodedRows.length === 2);
    leaver.leave();
    await eventually(() => recordsOf("cancelled").length === 1);
    server.backend().allow(FOREVER);
    const { body: answer } = await postJson(`${server.url}/v1/chat/completions`, { ...body(prompt, false), max_tokens: 1 });
    expect(
      (answer.usage as { prompt_tokens_details: { cached_tokens: number } }).prompt_tokens_details.cached_tokens,
    ).toBeGreaterThan(64);
  });

  it("three at a time leave nothing behind", async () => {
    const leavers = ["a", "b", "c"].map((name) => call(name));
    await eventually(async () => (await status()).waiting === 2);
    for (const leaver of leavers) leaver.leave();
    await eventually(() => recordsOf("cancelled").length === 3);
    expect(await status()).toMatchObject({ waiting: 0, prefilling: 0, decoding: 0 });
    expect(await gauge("vllm:num_requests_running")).toBe(0);
    expect(await gauge("vllm:num_requests_waiting")).toBe(0);
    expect((await getJson(`${server.url}/health`)).body).toMatchObject({ requests: { running: 0, waiting: 0 } });
    // Exactly one terminal record each.
    const terminal = server.records.filter(({ event }) =>
      ["finished", "failed", "cancelled", "rejected"].includes(String(event)),
    );
    expect(new Set(terminal.map((record) => record.request_id))).toEqual(
      new Set(recordsOf("received").map((record) => record.request_id)),
    );
    expect(terminal.length).toBe(3);
  });
});
