/** OpenAI's own npm client against this server: what it accepts is what other clients accept. */

import OpenAI, { APIError, BadRequestError, NotFoundError, RateLimitError } from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually } from "./support/http-client.ts";
import { type TestServer, testServer } from "./support/test-server.ts";

describe("the openai client", () => {
  let server: TestServer;
  let client: OpenAI;
  beforeAll(async () => {
    server = await testServer({
      reply: () => "Hello, world!",
      engine: { maxConcurrency: 1, maxPendingRequests: 2 },
      server: { apiKeys: ["key"] },
    });
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "key", maxRetries: 0 });
  });
  afterAll(() => server.close());

  const messages = [{ role: "user" as const, content: "Hi" }];

  it("lists models", async () => {
    const models = await client.models.list();
    expect(models.data.map(({ id }) => id)).toEqual(["tiny"]);
    expect((await client.models.retrieve("acme/tiny")).id).toBe("tiny");
  });

  it("creates a chat completion", async () => {
    const completion = await client.chat.completions.create({ model: "tiny", messages, logprobs: true, top_logprobs: 1 });
    expect(completion.choices[0]?.message.content).toBe("Hello, world!");
    expect(completion.choices[0]?.logprobs?.content?.map(({ token }) => token).join("")).toBe("Hello, world!");
    expect(completion._request_id).toBe(completion.id);
  });

  it("streams a chat completion with usage, once by hand and once through its accumulator", async () => {
    const stream = await client.chat.completions.create({
      model: "tiny",
      messages,
      n: 2,
      stream: true,
      stream_options: { include_usage: true },
    });
    const texts = ["", ""];
    let usages = 0;
    for await (const chunk of stream) {
      for (const { index, delta } of chunk.choices) texts[index] += delta.content ?? "";
      if (chunk.usage) usages++;
    }
    expect(texts).toEqual(["Hello, world!", "Hello, world!"]);
    expect(usages).toBe(1);

    const runner = client.chat.completions.stream({
      model: "tiny",
      messages,
      logprobs: true,
      stream_options: { include_usage: true },
    });
    const final = await runner.finalChatCompletion();
    const whole = await client.chat.completions.create({ model: "tiny", messages });
    expect(final.choices[0]?.message.content).toBe("Hello, world!");
    expect(final.choices[0]?.finish_reason).toBe("stop");
    expect(final.usage?.completion_tokens).toBe(whole.usage?.completion_tokens);
    expect(final.usage?.prompt_tokens).toBe(whole.usage?.prompt_tokens);
  });

  it("creates and streams completions", async () => {
    const completion = await client.completions.create({ model: "tiny", prompt: ["a:", "b:"], max_tokens: 5 });
    expect(completion.choices.map(({ text }) => text)).toEqual(["Hello", "Hello"]);
    let text = "";
    for await (const chunk of await client.completions.create({ model: "tiny", prompt: "a:", stream: true }))
      text += chunk.choices[0]?.text ?? "";
    expect(text).toBe("Hello, world!");
  });

  it("gets its own error classes", async () => {
    await expect(client.chat.completions.create({ model: "other", messages })).rejects.toBeInstanceOf(NotFoundError);
    const bad = client.chat.completions.create({ model: "tiny", messages: [{ role: "user", content: "x".repeat(1000) }] });
    await expect(bad).rejects.toMatchObject({
      status: 400,
      code: "context_length_exceeded",
      param: "messages",
      requestID: expect.stringMatching(/^chatcmpl-/),
    });
    await expect(bad).rejects.toBeInstanceOf(BadRequestError);
    const unauthorized = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "wrong", maxRetries: 0 });
    await expect(unauthorized.models.list()).rejects.toMatchObject({ status: 401, code: "invalid_api_key" });
  });

  it("aborts: the engine is free again", async () => {
    server.backend().allow(0);
    const stream = await client.chat.completions.create({ model: "tiny", messages, stream: true });
    stream.controller.abort();
    await eventually(() => server.records.some(({ event }) => event === "cancelled"));
    expect(await server.generator.status()).toMatchObject({ waiting: 0, prefilling: 0, decoding: 0 });
    server.backend().allow(Number.POSITIVE_INFINITY);
  });

  it("throws when a stream fails after its first byte", async () => {
    server.backend().allow(0);
    const stream = await client.chat.completions.create({ model: "tiny", messages, stream: true });
    server.engines.crash();
    const reading = (async () => {
      for await (const _chunk of stream);
    })();
    await expect(reading).rejects.toBeInstanceOf(APIError);
    await expect(reading).rejects.toMatchObject({ code: "engine_crashed" });
    await eventually(() => server.generator.state === "ready");
  });

  it("is told to come back later when the queue is full, and does", async () => {
    server.backend().allow(0);
    const running = await Promise.all(
      [1, 2, 3].map(() => client.chat.completions.create({ model: "tiny", messages, stream: true })),
    );
    await expect(client.chat.completions.create({ model: "tiny", messages })).rejects.toBeInstanceOf(RateLimitError);
    server.backend().allow(Number.POSITIVE_INFINITY);
    for (const stream of running) for await (const _chunk of stream);
    expect((await client.chat.completions.create({ model: "tiny", messages })).choices.length).toBe(1);
  });

  it("never met a bug of ours", () => {
    expect(server.internalErrors).toEqual([]);
  });
});
