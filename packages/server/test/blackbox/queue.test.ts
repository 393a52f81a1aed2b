/** More requests than lanes, clients that leave, and a long prompt beside a stream, against the real server. */

import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { difference, greedyAlone, greedyRunOf, greedyStream } from "../support/greedy-run.ts";
import { postJson, StreamCall } from "../support/http-client.ts";
import { KvasirProcess, metric, soon } from "../support/kvasir-process.ts";

/** Distinct from its first token on, so that nothing of it is cached. */
const longPrompt = (length: number, first: number) =>
  Array.from({ length }, (_, index) => (index === 0 ? first : 97 + (index % 26)));

describe("the real server with two lanes and a queue of two", () => {
  let server: KvasirProcess;
  let url: string;
  beforeAll(async () => {
    server = new KvasirProcess(["--max-context-tokens", "8192", "--max-concurrency", "2", "--max-pending-requests", "2"]);
    url = await server.ready();
  });
  afterAll(() => server.stop());
  // Whatever a test did, nothing may stay behind.
  afterEach(() => idle());

  const running = () => metric(url, 'vllm:num_requests_running{model_name="tiny-qwen3"}');
  const waiting = () => metric(url, 'vllm:num_requests_waiting{model_name="tiny-qwen3"}');
  const kvUsage = () => metric(url, 'vllm:kv_cache_usage_perc{model_name="tiny-qwen3"}');
  const idle = () => soon(async () => (await running()) === 0 && (await waiting()) === 0 && (await kvUsage()) === 0);
  const cancelled = async (phase: string) => (await metric(url, `kvasir_cancelled_total{phase="${phase}"}`)) ?? 0;
  const endless = { max_tokens: 8000, temperature: 0, ignore_eos: true };
  const start = (prompt: string | readonly number[], body: object = endless) =>
    new StreamCall(`${url}/v1/completions`, { prompt, ...body, stream: body !== quiet });
  const quiet = { ...endless };
  /** Starts a generation that goes on for long, and waits until it has begun. */
  const occupy = async (prompt: string) => {
    const call = start(prompt);
    await call.until((items) => items.length > 3);
    return call;
  };

  it("frees the place of a client that leaves while it decodes, streamed or not", async () => {
    const before = await cancelled("decode");
    const streamed = await occupy("a");
    streamed.leave();
    await soon(async () => (await cancelled("decode")) === before + 1);
    const whole = start("b", quiet);
    await soon(async () => (await running()) === 1);
    whole.leave();
    await idle();
    await soon(async () => (await cancelled("decode")) + (await cancelled("prefill")) >= before + 2);
  });

  it.each([true, false])("frees the place of a client that leaves while its prompt is computed (stream %s)", async (stream) => {
    const before = await cancelled("prefill");
    const call = start(longPrompt(8000, stream ? 65 : 66), stream ? endless : quiet);
    await soon(async () => ((await metric(url, 'kvasir_kv_tokens{state="running"}')) ?? 0) > 0);
    call.leave();
    await soon(async () => (await cancelled("prefill")) === before + 1);
  });

  it.each([true, false])(
    "never computes for a client that leaves while it waits, and disturbs nobody (stream %s)",
    async (stream) => {
      const alone = await greedyAlone(url, "steady", 500);
      const steady = greedyStream(url, "steady", 500);
      const other = await occupy("other");
      const before = await cancelled("queued");
      const leaver = start("leaver", stream ? endless : quiet);
      await soon(async () => (await waiting()) === 1);
      leaver.leave();
      await soon(async () => (await cancelled("queued")) === before + 1);
      await steady.toEnd();
      expect(difference(alone, greedyRunOf(steady))).toBeNull();
      other.leave();
    },
  );

  it("is empty again after three long requests were cancelled together", async () => {
    const calls = [await occupy("x"), await occupy("y"), start("z")];
    await soon(async () => (await running()) === 2 && (await waiting()) === 1);
    for (const call of calls) call.leave();
    await idle();
  });

  it("refuses exactly what is too much, at once and with Retry-After", async () => {
    const calls = [await occupy("p"), await occupy("q"), start("r"), start("s")];
    await soon(async () => (await waiting()) === 2);
    const refused = await Promise.all(
      ["t", "u"].map((prompt) => postJson(`${url}/v1/completions`, { prompt, stream: prompt === "t" })),
    );
    for (const { status, headers, body } of refused) {
      expect(status).toBe(429);
      expect(headers.get("retry-after")).toBe("5");
      expect(body.error).toMatchObject({ code: "queue_full", type: "rate_limit_error" });
    }
    for (const call of calls) call.leave();
  });

  it("sends headers and comments to a stream that waits", async () => {
    const occupying = [await occupy("k"), await occupy("l")];
    const call = start("m");
    expect(await call.status()).toBe(200);
    await call.until(() => call.comments.length > 0);
    expect(call.comments[0]).toBe("queued position 1");
    expect(call.chunks()).toEqual([]);
    call.leave();
    for (const each of occupying) each.leave();
  });

  it("goes on streaming while a long prompt is computed, and says how far that is", async () => {
    const stream = await occupy("flow");
    const long = start(longPrompt(4000, 71), { ...endless, max_tokens: 1, return_progress: true });
    await long.until(() => long.chunks().some((chunk) => chunk.prompt_progress));
    const before = stream.chunks().length;
    await long.toEnd();
    const during = stream.chunks().length - before;
    const steps = long.chunks().filter((chunk) => chunk.prompt_progress).length;
    // Each step that computes a piece of the prompt also computes a token of the stream.
    expect(steps).toBeGreaterThan(4);
    expect(during).toBeGreaterThanOrEqual(Math.floor(steps * 0.8));
    stream.leave();
  });

  it("lets a short prompt pass beside a long one", async () => {
    const long = start(longPrompt(8000, 72), { ...endless, max_tokens: 1 });
    await soon(async () => ((await metric(url, 'kvasir_kv_tokens{state="running"}')) ?? 0) > 0);
    const { status } = await postJson(`${url}/v1/completions`, { prompt: "a short one", max_tokens: 4 });
    expect(status).toBe(200);
    expect(long.chunks()).toEqual([]);
    long.leave();
  });

  it("keeps two sessions that alternate in their lanes", async () => {
    const histories = { A: "Session A begins. ", B: "Session B begins. " };
    for (let turn = 0; turn < 10; turn++) {
      for (const name of ["A", "B"] as const) {
        const before = Buffer.byteLength(histories[name]);
        histories[name] += `Turn ${turn} of ${name} says something new. `;
        const { body } = await postJson(`${url}/v1/completions`, { prompt: histories[name], max_tokens: 4, temperature: 0 });
        const usage = body.usage as { prompt_tokens: number; prompt_tokens_details: { cached_tokens: number } };
        // The vocabulary merges a few bytes, so tokens are at most bytes.
        if (turn > 0) expect(usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(before * 0.7);
      }
    }
  });
});

describe("the real server with little KV", () => {
  it("serves requests that are together larger than it, a big one among them, and fails none", async () => {
    await using server = new KvasirProcess(["--max-context-tokens", "1024", "--max-concurrency", "2"]);
    const url = await server.ready();
    const lengths = [300, 900, 300, 600, 300, 900];
    const answers = await Promise.all(
      lengths.map((length, index) =>
        postJson(`${url}/v1/completions`, { prompt: longPrompt(length, 65 + index), max_tokens: 120, ignore_eos: true }),
      ),
    );
    expect(
      answers.map(({ status, body }) => [status, (body.usage as { completion_tokens: number }).completion_tokens]),
    ).toEqual(lengths.map(() => [200, 120]));
  });
});

describe("the real server with a short patience", () => {
  it("answers 503 with Retry-After to a wait that expired, and an error event after headers", async () => {
    await using server = new KvasirProcess([
      "--max-context-tokens",
      "8192",
      "--max-concurrency",
      "1",
      "--pending-timeout-ms",
      "300",
    ]);
    const url = await server.ready();
    const body = { max_tokens: 8000, ignore_eos: true, stream: true };
    const running = new StreamCall(`${url}/v1/completions`, { prompt: "a", ...body });
    await running.until((items) => items.length > 3);
    const streamed = new StreamCall(`${url}/v1/completions`, { prompt: "b", ...body });
    const whole = await postJson(`${url}/v1/completions`, { prompt: "c" });
    expect(whole).toMatchObject({ status: 503, body: { error: { code: "queue_timeout", type: "server_error" } } });
    expect(whole.headers.get("retry-after")).toBe("10");
    await streamed.toEnd();
    expect(streamed.chunks()).toMatchObject([{ error: { code: "queue_timeout" } }]);
    expect(streamed.doneCount).toBe(0);
    running.leave();
  });
});
