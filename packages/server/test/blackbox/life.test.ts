/** The real server's life: loading, losing its engine, being told to stop, lacking memory. */

import { createServer, type AddressInfo } from "node:net";
import { describe, expect, it } from "vitest";
import { getJson, postJson, StreamCall } from "../support/http-client.ts";
import { isAlive, KvasirProcess, metric, soon } from "../support/kvasir-process.ts";

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

const endless = { prompt: "on and on", max_tokens: 8000, ignore_eos: true, stream: true };
const flags = ["--max-context-tokens", "8192", "--max-concurrency", "1"];

describe("the real server", () => {
  it("is alive at once and ready when the first token is possible", async () => {
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    await using _server = new KvasirProcess([...flags, "--port", String(port)]);
    let answer = await getJson(`${url}/ready`).catch(() => null);
    await soon(async () => {
      answer ??= await getJson(`${url}/ready`).catch(() => null);
      return answer !== null;
    });
    // It listens before it loads: the first answer cannot be "ready".
    expect(answer).toMatchObject({ status: 503, body: { error: { code: "engine_starting" } } });
    expect(answer?.headers.get("retry-after")).toBe("2");
    expect((await getJson(`${url}/health`)).status).toBe(200);
    await soon(async () => (await getJson(`${url}/ready`)).status === 200);
    expect((await postJson(`${url}/v1/completions`, { prompt: "a", max_tokens: 1 })).status).toBe(200);
  });

  it("survives kill -9 of its engine: an error event, /health, and the next request works", async () => {
    await using server = new KvasirProcess(flags);
    const url = await server.ready();
    const running = new StreamCall(`${url}/v1/completions`, endless);
    await running.until((items) => items.length > 10);
    const waiting = postJson(`${url}/v1/completions`, { prompt: "waits", max_tokens: 1 });
    await soon(async () => (await metric(url, "kvasir_requests_waiting")) === 1);
    const lost = server.enginePid;
    process.kill(lost, "SIGKILL");
    await running.toEnd();
    expect(running.chunks().at(-1)).toMatchObject({ error: { code: "engine_crashed", type: "server_error" } });
    expect(running.doneCount).toBe(0);
    expect(await waiting).toMatchObject({ status: 500, body: { error: { code: "engine_crashed" } } });
    expect((await getJson(`${url}/health`)).body).toMatchObject({ status: "ok" });
    // Sent while the engine is away: it waits for the new one.
    expect((await postJson(`${url}/v1/completions`, { prompt: "next", max_tokens: 1 })).status).toBe(200);
    expect((await getJson(`${url}/health`)).body).toMatchObject({ state: "ready", engine_restarts: 1 });
    expect(server.enginePid).not.toBe(lost);
  });

  it("closes its port at once on SIGTERM, ends what is over in time, and leaves no process", async () => {
    await using server = new KvasirProcess([...flags, "--drain-timeout-ms", "600000"]);
    const url = await server.ready();
    const engine = server.enginePid;
    const running = new StreamCall(`${url}/v1/completions`, { ...endless, max_tokens: 1000 });
    await running.until((items) => items.length > 10);
    server.signal("SIGTERM");
    await soon(() =>
      fetch(`${url}/health`).then(
        () => false,
        () => true,
      ),
    );
    await running.toEnd();
    expect(running.doneCount).toBe(1);
    expect(await server.ended).toEqual({ code: 0, signal: null });
    await soon(() => !isAlive(engine));
  });

  it("cuts a long answer with an error event when the drain time is over, and exits with 0", async () => {
    await using server = new KvasirProcess([...flags, "--drain-timeout-ms", "100"]);
    const url = await server.ready();
    const engine = server.enginePid;
    const running = new StreamCall(`${url}/v1/completions`, endless);
    await running.until((items) => items.length > 10);
    server.signal("SIGINT");
    await running.toEnd();
    expect(running.chunks().at(-1)).toMatchObject({ error: { code: "shutting_down" } });
    expect(running.doneCount).toBe(0);
    expect(await server.ended).toEqual({ code: 0, signal: null });
    await soon(() => !isAlive(engine));
  });

  it("does not start without memory for its KV, and says what would fit", async () => {
    await using server = new KvasirProcess(["--max-context-tokens", "100000000"]);
    const { code } = await server.ended;
    expect(code).not.toBe(0);
    expect(server.output).toMatch(/GiB.*GiB/s);
  });

  it("asks for a key on an open address, and takes it in every form", async () => {
    await using open = new KvasirProcess(["--host", "0.0.0.0"]);
    expect((await open.ended).code).not.toBe(0);
    expect(open.output).toContain("key");
    await using server = new KvasirProcess([...flags, "--api-key", "secret"]);
    const url = await server.ready();
    expect((await getJson(`${url}/health`)).status).toBe(200);
    expect(await getJson(`${url}/v1/models`)).toMatchObject({ status: 401, body: { error: { code: "missing_api_key" } } });
    expect(await getJson(`${url}/v1/models`, { "x-api-key": "wrong" })).toMatchObject({
      status: 401,
      body: { error: { code: "invalid_api_key" } },
    });
    expect((await getJson(`${url}/v1/models`, { authorization: "Bearer secret" })).status).toBe(200);
  });
});
