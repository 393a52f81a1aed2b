/** Requests that are wrong, one after the other, against the real server, while a neighbour generates undisturbed. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { difference, type GreedyRun, greedyAlone, greedyRunOf, greedyStream } from "../support/greedy-run.ts";
import { getJson, postJson, type StreamCall } from "../support/http-client.ts";
import { KvasirProcess, metric } from "../support/kvasir-process.ts";

const user = (content: unknown) => [{ role: "user", content }];

describe("the real server, asked wrongly", () => {
  let server: KvasirProcess;
  let url: string;
  let alone: GreedyRun;
  let neighbour: StreamCall;

  beforeAll(async () => {
    server = new KvasirProcess(["--max-context-tokens", "4096", "--max-concurrency", "2", "--max-body-mib", "32"]);
    url = await server.ready();
    alone = await greedyAlone(url, "The neighbour", 1200);
    neighbour = greedyStream(url, "The neighbour", 1200);
    await neighbour.until((items) => items.length > 20);
  });
  afterAll(() => server.stop());

  const chat = (body: object | string | Uint8Array, headers: Record<string, string> = {}) =>
    postJson(`${url}/v1/chat/completions`, body, headers);

  it.each([
    ["malformed JSON", '{"messages": [', 400, "invalid_json", null],
    ["another kind of JSON", "[]", 400, "invalid_value", null],
    ["no messages", {}, 400, "missing_field", "messages"],
    ["empty messages", { messages: [] }, 400, "invalid_value", "messages"],
    ["a wrong type", { messages: user("x"), temperature: "hot" }, 400, "invalid_value", "temperature"],
    ["a number out of range", { messages: user("x"), top_p: 2 }, 400, "invalid_value", "top_p"],
    ["a negative limit", { messages: user("x"), max_tokens: -1 }, 400, "invalid_value", "max_tokens"],
    ["a negative limit in a stream", { messages: user("x"), max_tokens: -1, stream: true }, 400, "invalid_value", "max_tokens"],
    ["a limit beyond the window", { messages: user("x"), max_tokens: 5000 }, 400, "max_tokens_exceeds_window", "max_tokens"],
    ["a prompt beyond the window", { messages: user("x".repeat(5000)) }, 400, "context_length_exceeded", "messages"],
    ["the same in a stream", { messages: user("x".repeat(5000)), stream: true }, 400, "context_length_exceeded", "messages"],
    ["another model", { model: "gpt-4", messages: user("x") }, 404, "model_not_found", "model"],
    ["half a character", '{"messages":[{"role":"user","content":"\\ud83d"}]}', 400, "invalid_utf8", "messages[0].content"],
    [
      "tools",
      { messages: user("x"), tools: [{ type: "function", function: { name: "f" } }] },
      400,
      "unsupported_field",
      "tools",
    ],
    [
      "structured output",
      { messages: user("x"), response_format: { type: "json_object" } },
      400,
      "unsupported_field",
      "response_format",
    ],
    [
      "an image",
      { messages: user([{ type: "image_url", image_url: { url: "data:," } }]) },
      400,
      "unsupported_field",
      "messages[0].content[0]",
    ],
    ["an unknown field", { messages: user("x"), temprature: 1 }, 400, "unsupported_field", "temprature"],
    ["an unknown role", { messages: [{ role: "robot", content: "x" }] }, 400, "invalid_value", "messages[0].role"],
    ["a foreign token", { messages: user("x"), logit_bias: { "99999": 1 } }, 400, "invalid_value", "logit_bias.99999"],
    ["too many choices", { messages: user("x"), n: 100 }, 400, "invalid_value", "n"],
  ])("refuses %s", async (_what, body, status, code, param) => {
    const answer = await chat(body);
    expect(answer.status).toBe(status);
    expect(answer.headers.get("content-type")).toContain("application/json");
    expect(answer.headers.get("x-request-id")).toMatch(/^chatcmpl-/);
    expect(answer.body.error).toMatchObject({ code, param, type: "invalid_request_error", message: expect.any(String) });
  });

  it("tells both numbers of a prompt that is too long", async () => {
    const { body } = await postJson(`${url}/v1/completions`, { prompt: Array.from({ length: 5000 }, () => 97) });
    expect(body.error?.message).toMatch(/maximum context length is 4096 tokens.*5000 tokens/);
  });

  it("refuses bytes that are not UTF-8, and a body of 100 MB", async () => {
    expect((await chat(Uint8Array.of(0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d))).body.error?.code).toBe("invalid_utf8");
    const large = await chat(Buffer.alloc(100 * 1024 * 1024, 0x20));
    expect(large).toMatchObject({ status: 413, body: { error: { code: "body_too_large" } } });
  });

  it("refuses other content types, headers that are too large, wrong methods and unknown paths", async () => {
    expect(await chat("{}", { "content-type": "text/plain" })).toMatchObject({
      status: 415,
      body: { error: { code: "unsupported_media_type" } },
    });
    expect(await chat({}, { "x-large": "a".repeat(20_000) })).toMatchObject({
      status: 431,
      body: { error: { code: "headers_too_large" } },
    });
    const wrong = await fetch(`${url}/v1/chat/completions`);
    expect([wrong.status, wrong.headers.get("allow")]).toEqual([405, "POST"]);
    expect(await getJson(`${url}/nowhere`)).toMatchObject({ status: 404, body: { error: { code: "route_not_found" } } });
  });

  it("accepts what is unusual and harmless", async () => {
    const body = {
      messages: [
        ...user("x"),
        { role: "assistant", content: null },
        { role: "assistant", content: [] },
        { role: "assistant" },
        ...user("y"),
      ],
      max_tokens: 1,
    };
    expect((await chat({ ...body, tool_choice: "none", user: "u", metadata: { a: "b" } })).status).toBe(200);
    expect((await chat({ messages: user([{ type: "text", text: "x" }]), max_tokens: 0 })).body).toMatchObject({
      usage: { completion_tokens: 0 },
      choices: [{ finish_reason: "length" }],
    });
  });

  it("keeps foreign pages and hosts out", async () => {
    expect(await getJson(`${url}/v1/models`, { origin: "https://evil.com" })).toMatchObject({
      status: 403,
      body: { error: { code: "origin_not_allowed" } },
    });
    expect((await fetch(`${url}/v1/models`)).headers.get("access-control-allow-origin")).toBeNull();
  });

  it("counts what it refused", async () => {
    expect(await metric(url, 'kvasir_rejections_total{code="unsupported_field"}')).toBe(4);
    expect(await metric(url, 'kvasir_failures_total{code="internal_error"}')).toBeNull();
    expect(server.output).not.toMatch(/\berror\b.*request/);
  });

  it("did not disturb the neighbour", async () => {
    await neighbour.toEnd();
    expect(difference(alone, greedyRunOf(neighbour))).toBeNull();
    expect(neighbour.doneCount).toBe(1);
  });
});
