/** The official `openai` package for Node against the real server on the real model. */

import OpenAI, { APIError } from "openai";
import { beforeAll, expect, test } from "vitest";
import { type SharedServer } from "./support/shared-server-file.ts";
import { sharedServer } from "./support/shared-server.ts";

let server: SharedServer;
let client: OpenAI;
beforeAll(async () => {
  server = await sharedServer();
  client = new OpenAI({ baseURL: `${server.address}/v1`, apiKey: "unused", maxRetries: 0 });
});

const messages = [{ role: "user", content: "What is the capital of France? Answer in one short sentence." }] as const;

test("a chat completion says something about Paris and counts its tokens", async () => {
  const answer = await client.chat.completions.create({
    model: server.model,
    messages: [...messages],
    max_tokens: 48,
    temperature: 0,
  });
  expect(answer.choices[0]?.message.content).toContain("Paris");
  expect(answer.choices[0]?.finish_reason).toBe("stop");
  const {
    prompt_tokens: promptTokens = 0,
    completion_tokens: completionTokens = 0,
    total_tokens: totalTokens,
  } = answer.usage ?? {};
  expect(promptTokens).toBeGreaterThan(10);
  expect(totalTokens).toBe(promptTokens + completionTokens);
});

test("a streamed chat gives the same text piece by piece, then the usage", async () => {
  const request = { model: server.model, messages: [...messages], max_tokens: 48, temperature: 0 };
  const stream = await client.chat.completions.create({ ...request, stream: true, stream_options: { include_usage: true } });
  const pieces: string[] = [];
  const reasons: string[] = [];
  let usage: OpenAI.CompletionUsage | null | undefined;
  for await (const chunk of stream) {
    pieces.push(...chunk.choices.flatMap((choice) => choice.delta.content ?? []));
    reasons.push(...chunk.choices.flatMap((choice) => choice.finish_reason ?? []));
    usage = chunk.usage ?? usage;
  }
  const whole = await client.chat.completions.create(request);
  expect(pieces.filter((piece) => piece !== "").length).toBeGreaterThan(3);
  expect(pieces.join("")).toBe(whole.choices[0]?.message.content);
  expect(reasons).toEqual(["stop"]);
  expect(usage).toMatchObject({ completion_tokens: whole.usage?.completion_tokens });
});

test("the package's own stream helper assembles the final message", async () => {
  const run = client.chat.completions.stream({ model: server.model, messages: [...messages], max_tokens: 16, temperature: 0 });
  let text = "";
  run.on("content", (delta) => {
    text += delta;
  });
  const completion = await run.finalChatCompletion();
  expect(completion.choices[0]?.message.content).toBe(text);
  expect(text).not.toBe("");
});

test("a streamed completion continues a prompt to max_tokens", async () => {
  const request = { model: server.model, prompt: "1, 2, 3, 4, 5, 6, 7,", max_tokens: 12, temperature: 0 };
  const stream = await client.completions.create({ ...request, stream: true, stream_options: { include_usage: true } });
  const pieces: string[] = [];
  let usage: OpenAI.CompletionUsage | null | undefined;
  for await (const chunk of stream) {
    pieces.push(...chunk.choices.map((choice) => choice.text));
    usage = chunk.usage ?? usage;
  }
  const whole = await client.completions.create(request);
  expect(pieces.join("")).toBe(whole.choices[0]?.text);
  expect(whole.choices[0]?.finish_reason).toBe("length");
  expect(usage).toMatchObject({ completion_tokens: 12 });
});

test("several prompts and choices come back in order", async () => {
  const answer = await client.completions.create({
    model: server.model,
    prompt: ["One, two,", "A, B,"],
    n: 2,
    max_tokens: 4,
    temperature: 0,
  });
  expect(answer.choices.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
  const texts = answer.choices.map(({ text }) => text);
  expect(texts[0]).toBe(texts[1]);
  expect(texts[0]).not.toBe(texts[2]);
});

test("models.list names the served model", async () => {
  const ids: string[] = [];
  for await (const model of client.models.list()) ids.push(model.id);
  expect(ids).toContain(server.model);
});

test("an unknown model and a bad value arrive as the package's own errors", async () => {
  const unknown = client.chat.completions.create({ model: "gpt-unknown", messages: [...messages] });
  await expect(unknown).rejects.toThrow(OpenAI.NotFoundError);
  await expect(unknown).rejects.toMatchObject({ status: 404, code: "model_not_found" });
  const negative = client.chat.completions.create({ model: server.model, messages: [...messages], max_tokens: -1 });
  await expect(negative).rejects.toThrow(OpenAI.BadRequestError);
  await expect(negative).rejects.toBeInstanceOf(APIError);
});

test("an aborted stream ends at once and the next request works", async () => {
  const stream = await client.chat.completions.create({
    model: server.model,
    messages: [...messages],
    max_tokens: 1500,
    stream: true,
  });
  let chunks = 0;
  for await (const _ of stream) {
    chunks++;
    if (chunks === 3) stream.controller.abort();
  }
  expect(chunks).toBeGreaterThanOrEqual(3);
  const after = await client.chat.completions.create({ model: server.model, messages: [...messages], max_tokens: 4 });
  expect(after.usage?.completion_tokens).toBeGreaterThan(0);
});
