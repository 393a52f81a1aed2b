import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startServer } from "../src/http/http-server.ts";
import { noRecordWriter } from "../src/observe/request-log.ts";
import { getJson, postJson } from "./support/http-client.ts";
import { type TestServer, testServer, testServerOptions } from "./support/test-server.ts";

describe("routes", () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await testServer();
  });
  afterAll(async () => {
    await server.close();
    expect(server.internalErrors).toEqual([]);
  });

  it("tell what is here", async () => {
    const text = await (await fetch(server.url)).text();
    expect(text).toContain("Kvasir");
    expect(text).toContain("tiny");
  });

  it.each(["/nowhere", "/v1", "/v1/chat", "/v1/chat/completions/", "//", "/v1/models/other"])(
    "answer 404 to %s",
    async (path) => {
      const { status, headers, body } = await getJson(server.url + path);
      expect(status).toBe(404);
      expect(["route_not_found", "model_not_found"]).toContain(body.error?.code);
      expect(headers.get("x-request-id")).toMatch(/^req_[0-9a-f]{24}$/);
    },
  );

  it.each([
    ["GET", "/v1/chat/completions", "POST"],
    ["DELETE", "/v1/completions", "POST"],
    ["POST", "/health", "GET, HEAD"],
    ["PUT", "/v1/models", "GET, HEAD"],
    ["PATCH", "/v1/models/tiny", "GET, HEAD"],
    ["OPTIONS", "/tokenize", "POST"],
  ])("answer 405 to %s %s with what is allowed", async (method, path, allow) => {
    const response = await fetch(server.url + path, { method, ...(method === "GET" ? {} : { body: "x" }) });
    expect(response.status).toBe(405);
    expect(response.headers.get("allow")).toBe(allow);
    expect(await response.json()).toMatchObject({ error: { code: "method_not_allowed" } });
  });

  it("list the model with its window and capacity", async () => {
    const { body } = await getJson(`${server.url}/v1/models`);
    expect(body).toMatchObject({
      object: "list",
      data: [
        {
          id: "tiny",
          object: "model",
          created: 1_700_000_000,
          owned_by: "kvasir",
          context_length: 512,
          max_model_len: 512,
          max_output_tokens: 512,
          input_modalities: ["text"],
          capacity: { max_concurrency: 2, max_pending_requests: 4, lanes: 2, kv_capacity_tokens: 1024 },
        },
      ],
    });
    expect((await getJson(`${server.url}/v1/models/tiny`)).body).toEqual((body.data as object[])[0]);
  });

  it("name the models that are here when another is asked for", async () => {
    const { status, body } = await postJson(`${server.url}/v1/chat/completions`, {
      model: "gpt-4",
      messages: [{ role: "user", content: "x" }],
    });
    expect(status).toBe(404);
    expect(body.error).toMatchObject({ code: "model_not_found", param: "model" });
    expect(body.error?.message).toContain('"tiny"');
  });

  it("refuse a prompt that is too long with both numbers, before it queues", async () => {
    const records = server.records.length;
    const { status, body } = await postJson(`${server.url}/v1/completions`, { prompt: Array.from({ length: 600 }, () => 1) });
    expect(status).toBe(400);
    expect(body.error).toMatchObject({ code: "context_length_exceeded", param: "prompt" });
    expect(body.error?.message).toContain("maximum context length is 512 tokens");
    expect(body.error?.message).toContain("600 tokens");
    expect(server.records.slice(records).map(({ event }) => event)).toEqual(["received", "rejected"]);
  });

  it("take a prompt up to the window's last place", async () => {
    const prompt = (length: number, max_tokens?: number) =>
      postJson(`${server.url}/v1/completions`, { prompt: Array.from({ length }, () => 1), max_tokens });
    expect((await prompt(511)).body).toMatchObject({ usage: { completion_tokens: 1 }, choices: [{ finish_reason: "length" }] });
    expect((await prompt(512)).body.error?.code).toBe("context_length_exceeded");
    expect((await prompt(512, 0)).body).toMatchObject({ usage: { prompt_tokens: 512, completion_tokens: 0 } });
  });

  it("refuse max_tokens beyond the window, and token ids beyond the vocabulary", async () => {
    const complete = (body: object) => postJson(`${server.url}/v1/completions`, { prompt: "x", ...body });
    expect((await complete({ max_tokens: 513 })).body.error).toMatchObject({
      code: "max_tokens_exceeds_window",
      param: "max_tokens",
    });
    expect((await complete({ max_tokens: 512 })).status).toBe(200);
    expect((await complete({ prompt: [1, 259] })).body.error).toMatchObject({ code: "invalid_value", param: "prompt[1]" });
    expect((await complete({ prompt: [[1], [2, 9999]] })).body.error).toMatchObject({
      code: "invalid_value",
      param: "prompt[1][1]",
    });
    expect((await complete({ logit_bias: { "259": 1 } })).body.error).toMatchObject({
      code: "invalid_value",
      param: "logit_bias.259",
    });
    expect((await complete({ prompt: "", add_special_tokens: false })).body.error).toMatchObject({
      code: "invalid_value",
      param: "prompt",
    });
    expect((await complete({ n: 7 })).body.error).toMatchObject({ code: "invalid_value", param: "n" });
  });

  it("refuse what a template refuses", async () => {
    const { status, body } = await postJson(`${server.url}/v1/chat/completions`, {
      messages: [{ role: "user", content: "x" }],
      chat_template_kwargs: { messages: [] },
    });
    expect({ status, code: body.error?.code }).toEqual({ status: 400, code: "invalid_value" });
  });

  it("cannot be opened twice on one port", async () => {
    const parts = {
      generator: server.generator,
      clock: { monotonicMs: () => 0, wallMs: () => 0, startTimer: () => () => {} },
      requestLog: noRecordWriter,
      onInternalError: () => {},
    };
    await expect(startServer({ ...testServerOptions, port: server.port }, parts)).rejects.toMatchObject({
      code: "port_in_use",
    });
    await expect(startServer({ ...testServerOptions, host: "0.0.0.0" }, parts)).rejects.toMatchObject({
      code: "invalid_configuration",
    });
  });
});
