/** The request log and the metrics of one server, seen from outside. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually, postJson, StreamCall } from "./support/http-client.ts";
import { type TestServer, testServer } from "./support/test-server.ts";

describe("observation", () => {
  let server: TestServer;
  beforeAll(async () => {
    server = await testServer({ reply: () => "abcdefghij", engine: { maxConcurrency: 1, maxPendingRequests: 1 } });
  });
  afterAll(() => server.close());

  const secret = "this text must stay private";
  const chat = (body: object = {}) =>
    postJson(`${server.url}/v1/chat/completions`, { messages: [{ role: "user", content: secret }], ...body });
  const metrics = async () => (await fetch(`${server.url}/metrics`)).text();
  const value = (text: string, series: string) => {
    const line = text.split("\n").find((each) => each.startsWith(`${series} `));
    return line === undefined ? null : Number(line.slice(series.length + 1));
  };

  it("writes one record a phase change and one terminal record a request", async () => {
    const { body } = await chat({ max_tokens: 5, user: secret });
    const records = server.records.filter((record) => record.request_id === body.id);
    expect(records.map((record) => record.event)).toEqual(["received", "admitted", "first_token", "finished"]);
    for (const record of records) {
      expect(record).toMatchObject({
        schema_version: 1,
        server_instance_id: expect.stringMatching(/^srv_/),
        time: expect.stringMatching(/^\d{4}-.*Z$/),
      });
    }
    expect(records[0]).toMatchObject({
      protocol: "openai-chat",
      model: "tiny",
      stream: false,
      prompts: 1,
      choices: 1,
      max_tokens: 5,
    });
    const { prompt_tokens } = body.usage as { prompt_tokens: number };
    expect(records.at(-1)).toMatchObject({
      duration_ms: expect.any(Number),
      first_token_ms: expect.any(Number),
      choices: [
        {
          choice: 0,
          finish_reason: "length",
          stopped_by_text: false,
          prompt_tokens,
          cached_tokens: 0,
          computed_tokens: prompt_tokens,
          output_tokens: 5,
          reset_reason: "cold",
          lane: 0,
          queue_ms: expect.any(Number),
          restore_ms: expect.any(Number),
          prefill_ms: expect.any(Number),
          decode_ms: expect.any(Number),
        },
      ],
    });
  });

  it("writes no text of prompts and answers, whatever happens", async () => {
    await chat({ stop: [secret] });
    await chat({ temperature: secret });
    await postJson(`${server.url}/v1/chat/completions`, `{"messages": "${secret}`);
    await chat({ model: secret.replaceAll(" ", "-") });
    const text = JSON.stringify(server.records.map(({ model: _named, ...record }) => record));
    expect(text).not.toContain("private");
    expect(text).not.toContain("abcde");
  });

  it("counts what happened under our names and under vLLM's", async () => {
    const before = await metrics();
    await chat();
    server.backend().allow(0);
    const running = new StreamCall(`${server.url}/v1/chat/completions`, {
      messages: [{ role: "user", content: "r" }],
      stream: true,
    });
    await running.status();
    const waiting = new StreamCall(`${server.url}/v1/chat/completions`, {
      messages: [{ role: "user", content: "w" }],
      stream: true,
    });
    await waiting.status();
    const during = await metrics();
    expect(value(during, "kvasir_requests_running")).toBe(1);
    expect(value(during, "kvasir_requests_waiting")).toBe(1);
    expect(value(during, 'vllm:num_requests_running{model_name="tiny"}')).toBe(1);
    expect(value(during, 'vllm:num_requests_waiting{model_name="tiny"}')).toBe(1);
    expect((await chat()).status).toBe(429);
    waiting.leave();
    await eventually(() => server.records.some((record) => record.event === "cancelled"));
    server.backend().allow(Number.POSITIVE_INFINITY);
    await running.toEnd();
    const after = await metrics();
    const grown = (series: string) => (value(after, series) ?? 0) - (value(before, series) ?? 0);
    expect(grown('kvasir_requests_total{protocol="openai-chat",outcome="finished"}')).toBe(2);
    expect(grown('kvasir_requests_total{protocol="openai-chat",outcome="rejected"}')).toBe(1);
    expect(grown('kvasir_rejections_total{code="queue_full"}')).toBe(1);
    expect(grown('kvasir_cancelled_total{phase="queued"}')).toBe(1);
    expect(grown("kvasir_generated_tokens_total")).toBe(22);
    expect(grown('vllm:generation_tokens_total{model_name="tiny"}')).toBe(22);
    expect(grown('vllm:request_success_total{finished_reason="stop",model_name="tiny"}')).toBe(2);
    expect(grown('vllm:time_to_first_token_seconds_count{model_name="tiny"}')).toBe(2);
    expect(grown('vllm:e2e_request_latency_seconds_count{model_name="tiny"}')).toBe(2);
    expect(grown('vllm:inter_token_latency_seconds_count{model_name="tiny"}')).toBe(18);
    expect(grown("kvasir_queue_seconds_count")).toBe(2);
    const queries = grown('vllm:prefix_cache_queries_total{model_name="tiny"}');
    const hits = grown('vllm:prefix_cache_hits_total{model_name="tiny"}');
    expect(grown('kvasir_prompt_tokens_total{source="computed"}')).toBe(queries - hits);
    expect(grown('kvasir_prompt_tokens_total{source="device"}')).toBe(hits);
    expect(hits).toBeGreaterThan(0);
    expect(value(after, 'kvasir_engine_state{state="ready"}')).toBe(1);
    expect(value(after, "kvasir_kv_capacity_tokens")).toBe(1024);
    expect(value(after, 'vllm:kv_cache_usage_perc{model_name="tiny"}')).toBe(0);
    expect(value(after, "kvasir_requests_running")).toBe(0);
    expect(grown('kvasir_http_responses_total{route="/v1/chat/completions",method="POST",status="429"}')).toBe(1);
  });

  it("names routes, not paths: labels do not grow with what clients send", async () => {
    await fetch(`${server.url}/a-path-that-nobody-knows`);
    await fetch(`${server.url}/v1/models/some-model-of-theirs`);
    const text = await metrics();
    expect(text).not.toContain("nobody-knows");
    expect(text).not.toContain("some-model-of-theirs");
    expect(text).toContain('route="/v1/models/*"');
  });

  it("still answers /metrics when the engine does not", async () => {
    server.engines.crash();
    expect(await metrics()).toContain("kvasir_requests_total");
    await eventually(() => server.generator.state === "ready");
    expect(value(await metrics(), "kvasir_engine_restarts")).toBe(1);
  });
});
