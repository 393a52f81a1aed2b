import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { afterEach, expect, test } from "vitest";
import { complete, firstModelName, firstTokenMs, gapsMs } from "../src/completion-client.ts";

let close = async () => {};
afterEach(() => close());

/** A server that answers every request as `answer` says. */
async function serve(answer: (request: IncomingMessage, response: ServerResponse, body: string) => void): Promise<string> {
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (chunk: Buffer) => {
      body += chunk.toString();
    });
    request.on("end", () => answer(request, response, body));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  close = () =>
    new Promise((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  const address = server.address();
  return typeof address === "object" && address !== null ? `http://127.0.0.1:${address.port}` : "";
}

const text = (content: string, extra = {}) =>
  `data: ${JSON.stringify({ choices: [{ index: 0, text: content }], ...extra })}\n\n`;

test("records-tokens-usage-and-phases-of-a-stream", async () => {
  let sent: unknown;
  const baseUrl = await serve((_request, response, body) => {
    sent = JSON.parse(body);
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(": queued\n\n");
    response.write(text("") + text("a"));
    response.write(text("b"));
    response.end(
      `data: ${JSON.stringify({ choices: [], usage: { prompt_tokens: 3, completion_tokens: 2, prompt_tokens_details: { cached_tokens: 1 } }, timings: { queue_ms: 0, prefill_ms: 4, decode_ms: 5 } })}\n\ndata: [DONE]\n\n`,
    );
  });
  const heard: number[] = [];
  const record = await complete(
    { baseUrl, model: "m" },
    { promptTokens: [1, 2, 3], maxTokens: 2, onOutput: (atMs) => heard.push(atMs) },
  );
  expect(sent).toMatchObject({ model: "m", prompt: [1, 2, 3], max_tokens: 2, temperature: 0, ignore_eos: true, stream: true });
  expect(record).toMatchObject({ status: 200, error: null, aborted: false, promptTokens: 3, cachedTokens: 1, outputTokens: 2 });
  expect(record.timings).toMatchObject({ prefillMs: 4, decodeMs: 5 });
  expect(record.outputAtMs).toEqual(heard);
  expect(heard).toHaveLength(2);
  expect(firstTokenMs(record)).toBe(heard[0]);
});

test("tokens-count-however-the-stream-is-cut", async () => {
  const whole = Buffer.from(`${text("é")}${text("\u{1F642}")}data: [DONE]\n\n`);
  const baseUrl = await serve((_request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const byte of whole) response.write(Buffer.of(byte));
    response.end();
  });
  const record = await complete({ baseUrl, model: "m" }, { promptTokens: [1], maxTokens: 2 });
  expect(record.error).toBeNull();
  expect(record.outputAtMs).toHaveLength(2);
});

test("a-refusal-is-a-record-with-its-body", async () => {
  const baseUrl = await serve((_request, response) => response.writeHead(429).end('{"error":"queue is full"}'));
  const record = await complete({ baseUrl, model: "m" }, { promptTokens: [1], maxTokens: 1 });
  expect(record).toMatchObject({ status: 429, error: 'HTTP 429: {"error":"queue is full"}', cachedTokens: null });
  expect(firstTokenMs(record)).toBeNaN();
});

test("an-error-event-and-a-cut-stream-are-errors", async () => {
  const baseUrl = await serve((_request, response, body) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(text("a"));
    if (body.includes('"cut"')) response.end();
    else response.end('data: {"error":{"code":"engine_crashed"}}\n\ndata: [DONE]\n\n');
  });
  const call = { promptTokens: [1], maxTokens: 4 };
  expect((await complete({ baseUrl, model: "crash" }, call)).error).toContain("engine_crashed");
  expect((await complete({ baseUrl, model: "cut" }, call)).error).toBe("the stream ended without [DONE]");
});

test("an-abort-ends-the-call-and-keeps-what-came", async () => {
  const baseUrl = await serve((_request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(text("a"));
  });
  const stop = new AbortController();
  const record = await complete(
    { baseUrl, model: "m" },
    { promptTokens: [1], maxTokens: 9, signal: stop.signal, onOutput: () => stop.abort() },
  );
  expect(record.aborted).toBe(true);
  expect(record.outputAtMs).toHaveLength(1);
});

test("a-server-that-is-not-there-is-a-record-too", async () => {
  const baseUrl = await serve(() => {});
  await close();
  const record = await complete({ baseUrl, model: "m" }, { promptTokens: [1], maxTokens: 1 });
  expect(record).toMatchObject({ status: 0, outputTokens: null });
  expect(record.error).toMatch(/ECONNREFUSED/);
});

test("a-cached-count-that-is-not-reported-is-unknown", async () => {
  const baseUrl = await serve((_request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(`${text("a", { usage: { prompt_tokens: 1, completion_tokens: 1 } })}data: [DONE]\n\n`);
  });
  expect((await complete({ baseUrl, model: "m" }, { promptTokens: [1], maxTokens: 1 })).cachedTokens).toBeNull();
});

test("finds-the-name-of-the-served-model", async () => {
  const baseUrl = await serve((request, response) =>
    response.end(request.url === "/v1/models" ? '{"data":[{"id":"tiny"}]}' : "{}"),
  );
  expect(await firstModelName(baseUrl)).toBe("tiny");
});

test("gaps-lie-between-consecutive-tokens", () => {
  expect(gapsMs([5, 7, 20])).toEqual([2, 13]);
  expect(gapsMs([5])).toEqual([]);
});
