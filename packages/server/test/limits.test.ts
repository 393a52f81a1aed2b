/** What is wrong with the bytes of a request: each its own answer, and the request beside it is not disturbed. Raw sockets. */

import { connect } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { eventually, postJson, StreamCall, textOf } from "./support/http-client.ts";
import { type TestServer, testServer } from "./support/test-server.ts";

interface RawAnswer {
  readonly status: number;
  readonly head: string;
  readonly body: { readonly error?: { readonly code: string; readonly message: string } };
  /** Bytes that the server let us send. */
  readonly sent: number;
}

const MEBIBYTE = 1024 * 1024;

/** Sends pieces until an answer has come or all are sent, then reads to the end of the answer. */
function rawCall(port: number, pieces: Iterable<string | Uint8Array>): Promise<RawAnswer> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, "127.0.0.1");
    let text = "";
    let sent = 0;
    const iterator = pieces[Symbol.iterator]();
    const pump = (): void => {
      const next = text === "" && !socket.destroyed ? iterator.next() : null;
      if (!next || next.done) return;
      sent += next.value.length;
      if (socket.write(next.value)) pump();
    };
    const settle = (): void => {
      const [head = "", body = ""] = text.split("\r\n\r\n");
      const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? Number.NaN);
      if (!(Buffer.byteLength(body) >= length)) return;
      socket.destroy();
      resolve({
        status: Number(head.split(" ")[1]),
        head: head.toLowerCase(),
        body: JSON.parse(body) as RawAnswer["body"],
        sent,
      });
    };
    socket.on("connect", pump);
    socket.on("drain", pump);
    socket.on("data", (bytes) => {
      text += bytes.toString("latin1");
      settle();
    });
    socket.on("close", () => reject(new Error(`closed after ${sent} bytes with ${JSON.stringify(text)}`)));
    socket.on("error", reject);
  });
}

function* megabytes(count: number, chunked: boolean): Generator<string | Uint8Array> {
  const block = new Uint8Array(MEBIBYTE).fill(0x20);
  for (let index = 0; index < count; index++) {
    if (chunked) yield "100000\r\n";
    yield block;
    if (chunked) yield "\r\n";
  }
}

const head = (...lines: string[]) =>
  `${["POST /v1/chat/completions HTTP/1.1", "host: localhost", ...lines].join("\r\n")}\r\n\r\n`;

describe("the bytes of a request", () => {
  let server: TestServer;
  let neighbour: StreamCall;
  beforeAll(async () => {
    server = await testServer({
      reply: () => "abcdefghij",
      server: { requestTimeoutMs: 300, headerLimitBytes: 8192, bodyLimitBytes: 4 * MEBIBYTE },
    });
    server.backend().allow(0);
    neighbour = new StreamCall(`${server.url}/v1/chat/completions`, {
      messages: [{ role: "user", content: "x" }],
      stream: true,
    });
    await neighbour.status();
    server.backend().allow(4);
    await eventually(() => server.backend().decodedRows.length === 4);
  });
  afterAll(async () => {
    server.backend().allow(Number.POSITIVE_INFINITY);
    await neighbour.toEnd();
    expect(textOf(neighbour)).toBe("abcdefghij");
    expect(neighbour.doneCount).toBe(1);
    await server.close();
    expect(server.internalErrors).toEqual([]);
  });

  const post = (body: string | Uint8Array, headers: Record<string, string> = {}) =>
    postJson(`${server.url}/v1/chat/completions`, body, headers);

  it("may not be 100 MB with a length: refused before they are read", async () => {
    const answer = await rawCall(server.port, [
      head("content-type: application/json", "content-length: 104857600"),
      ...megabytes(100, false),
    ]);
    expect(answer).toMatchObject({ status: 413, body: { error: { code: "body_too_large" } } });
    expect(answer.sent).toBeLessThan(16 * MEBIBYTE);
    expect(answer.head).toMatch(/x-request-id: chatcmpl-/);
  });

  it("may not be 100 MB in chunks: refused at the limit", async () => {
    const answer = await rawCall(server.port, [
      head("content-type: application/json", "transfer-encoding: chunked"),
      ...megabytes(100, true),
    ]);
    expect(answer).toMatchObject({ status: 413, body: { error: { code: "body_too_large" } } });
    expect(answer.sent).toBeLessThan(32 * MEBIBYTE);
  });

  it("are refused for their headers before their body is read", async () => {
    const answer = await rawCall(server.port, [
      head("content-type: text/plain", "content-length: 104857600"),
      ...megabytes(100, false),
    ]);
    expect(answer).toMatchObject({ status: 415, body: { error: { code: "unsupported_media_type" } } });
    expect(answer.sent).toBeLessThan(16 * MEBIBYTE);
  });

  it("reach a client that sends everything before it reads", async () => {
    const { status, body } = await post(Buffer.alloc(6 * MEBIBYTE, 0x20));
    expect(status).toBe(413);
    expect(body.error?.message).toContain("4.0 MiB");
  });

  it("may not have headers that are too large", async () => {
    const answer = await rawCall(server.port, [head(`x-large: ${"a".repeat(20_000)}`)]);
    expect(answer).toMatchObject({ status: 431, body: { error: { code: "headers_too_large" } } });
    expect(answer.head).toMatch(/x-request-id: req_/);
  });

  it.each([
    ["headers", "POST /v1/chat/completions HTTP/1.1\r\nhost: loc"],
    ["a body", head("content-type: application/json", "content-length: 100") + "{"],
  ])("may not take forever for %s", async (_what, bytes) => {
    expect(await rawCall(server.port, [bytes])).toMatchObject({ status: 408, body: { error: { code: "request_timeout" } } });
  });

  it("must be HTTP", async () => {
    expect(await rawCall(server.port, ["GARBAGE\r\n\r\n"])).toMatchObject({
      status: 400,
      body: { error: { code: "invalid_http" } },
    });
    expect(await rawCall(server.port, [head("content-length: x")])).toMatchObject({
      status: 400,
      body: { error: { code: "invalid_http" } },
    });
  });

  it.each([
    ["{", "invalid_json"],
    ['{"messages": [}', "invalid_json"],
    ["", "invalid_json"],
    ["null", "invalid_value"],
    ["[]", "invalid_value"],
    ['"text"', "invalid_value"],
    ['{"messages":[{"role":"user","content":"\\ud800"}]}', "invalid_utf8"],
  ])("with the body %j are %s", async (text, code) => {
    expect(await post(text)).toMatchObject({ status: 400, body: { error: { code, type: "invalid_request_error" } } });
  });

  it("must be UTF-8", async () => {
    const bytes = Uint8Array.from([
      ...new TextEncoder().encode('{"messages":[{"role":"user","content":"'),
      0xff,
      0xfe,
      ...new TextEncoder().encode('"}]}'),
    ]);
    expect(await post(bytes)).toMatchObject({ status: 400, body: { error: { code: "invalid_utf8" } } });
  });

  it.each([
    { "content-type": "text/plain" },
    { "content-type": "application/x-www-form-urlencoded" },
    { "content-type": "application/json; charset=latin1" },
    { "content-type": "application/json", "content-encoding": "gzip" },
  ])("must be plain JSON, not %j", async (headers) => {
    expect(await post('{"messages":[]}', headers as Record<string, string>)).toMatchObject({
      status: 415,
      body: { error: { code: "unsupported_media_type" } },
    });
  });

  it("may say that they are UTF-8", async () => {
    expect((await post("{}", { "content-type": "Application/JSON; charset=UTF-8" })).body.error?.code).toBe("missing_field");
  });

  it("leave one rejected record each, when they were meant for a generation", () => {
    const rejected = server.records.filter((record) => record.event === "rejected");
    expect(rejected.length).toBeGreaterThan(10);
    expect(rejected.every((record) => typeof record.error_code === "string" && record.protocol === "openai-chat")).toBe(true);
    expect(JSON.stringify(rejected)).not.toContain("message");
  });
});
