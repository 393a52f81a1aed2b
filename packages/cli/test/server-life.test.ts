/** One server's life through the real command: ready, found by the others, drained, cut, crashed, orphaned. */

import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type Command, Sandbox, tinyFlags } from "./support/command.ts";
import { childrenOf, gone, isAlive } from "./support/processes.ts";

let sandbox: Sandbox;
beforeEach(() => {
  sandbox = new Sandbox();
});
afterEach(() => sandbox.close());

const serveTiny = (flags: readonly string[] = []): Command => sandbox.start(["serve", ...tinyFlags, ...flags]);
const portOf = (address: string): string => new URL(address).port;

/** A streamed generation that goes on until it is cut: the model hardly ever ends by itself. */
async function longStream(address: string): Promise<{ next(): Promise<string>; rest(): Promise<string> }> {
  const response = await fetch(`${address}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: await modelOf(address), prompt: "once", max_tokens: 4000, stream: true, ignore_eos: true }),
  });
  expect(response.status).toBe(200);
  const reader = (response.body ?? expect.fail("no body")).pipeThrough(new TextDecoderStream()).getReader();
  const next = async (): Promise<string> => {
    const { value, done } = await reader.read();
    return done ? "" : value;
  };
  return {
    next,
    async rest() {
      let text = "";
      for (let chunk = await next(); chunk !== ""; chunk = await next()) text += chunk;
      return text;
    },
  };
}

async function completeOne(address: string): Promise<void> {
  const response = await fetch(`${address}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "tiny-qwen3", prompt: "a", max_tokens: 1 }),
  });
  expect(response.status).toBe(200);
}

async function modelOf(address: string): Promise<string> {
  const { model } = (await (await fetch(`${address}/health`)).json()) as { model: string };
  return model;
}

test("the printed curl line is what a shell runs, and its answer is a completion", async () => {
  const server = serveTiny();
  const address = await server.address();
  const [, url = "", body = ""] = await server.printed(/^curl (\S+) -H 'content-type: application\/json' -d '(.*)'$/m);
  expect(url).toBe(`${address}/v1/chat/completions`);
  const request = { ...(JSON.parse(body) as object), max_tokens: 4 };
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(request),
  });
  expect(await response.json()).toMatchObject({ object: "chat.completion", usage: { completion_tokens: 4 } });
  expect(server.stdout).toMatch(
    /context {2}4,096 tokens.*\n {2}lanes {4}2, 2 requests at a time\n {2}KV {7}16\.0 MiB \(f16, 2\.0 KiB a token\)\n {2}cache {4}[\d.]+ [KMG]iB of host memory\n {2}threads {2}1, CPU/,
  );
});

test("status, a second server on the port, and stop know the server", async () => {
  const server = serveTiny();
  const port = portOf(await server.address());
  const [status, json, second] = await Promise.all([
    sandbox.run(["status"]),
    sandbox.run(["status", "--json"]),
    sandbox.run(["serve", ...tinyFlags, "--port", port]),
  ]);
  expect([status.code, status.stdout]).toEqual([
    0,
    expect.stringMatching(/ready\n {2}model {4}tiny-qwen3\n {2}uptime.*\n {2}load {5}0 running, 0 waiting/),
  ]);
  expect(JSON.parse(json.stdout)).toMatchObject([{ pid: server.child.pid, model: "tiny-qwen3", health: { state: "ready" } }]);
  expect([second.code, second.stderr]).toEqual([
    1,
    expect.stringContaining(
      `Port ${port} on 127.0.0.1 is held by Kvasir (process ${server.child.pid}, model tiny-qwen3, since`,
    ),
  ]);
  const stop = await sandbox.run(["stop"]);
  expect([stop.code, stop.stdout]).toEqual([0, expect.stringContaining("stopped")]);
  expect((await server.ended).code).toBe(0);
  expect(readdirSync(join(sandbox.cacheDir, "run"))).toEqual([]);
});

test("a port that another program holds is told as that", async () => {
  const other = createServer().listen(0, "127.0.0.1");
  await once(other, "listening");
  const { port } = other.address() as AddressInfo;
  const { code, stderr } = await sandbox.run(["serve", ...tinyFlags, "--port", String(port)]);
  other.close();
  expect([code, stderr]).toEqual([1, expect.stringContaining("is held by another program")]);
});

test("start waits until the server is ready and leaves it running, logs shows its messages, stop ends it", async () => {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, "close");
  const flags = [...tinyFlags, "--port", String(port), "--api-key", "very-secret"];
  const started = await sandbox.run(["start", ...flags]);
  expect([started.code, started.stderr.includes("loading the model")]).toEqual([0, true]);
  expect(started.stdout).toContain(`Kvasir is ready on http://127.0.0.1:${port}`);
  const pid = Number(/process (\d+)/.exec(started.stdout)?.[1]);
  expect(isAlive(pid)).toBe(true);
  expect(readFileSync(`/proc/${pid}/cmdline`, "utf8")).not.toContain("very-secret");
  const withoutKey = await fetch(`http://127.0.0.1:${port}/v1/models`);
  const withKey = await fetch(`http://127.0.0.1:${port}/v1/models`, { headers: { authorization: "Bearer very-secret" } });
  expect([withoutKey.status, withKey.status]).toEqual([401, 200]);
  const again = await sandbox.run(["start", ...flags]);
  expect([again.code, again.stderr]).toEqual([
    1,
    expect.stringContaining(`runs already on http://127.0.0.1:${port} (process ${pid}`),
  ]);
  const follower = sandbox.start(["logs", "-f"]);
  await follower.printed(/Kvasir is ready/);
  const stopped = await sandbox.run(["stop", "--port", String(port)]);
  expect([stopped.code, isAlive(pid)]).toEqual([0, false]);
  const followed = await follower.ended;
  expect([followed.code, followed.stdout]).toEqual([0, expect.stringMatching(/draining[\s\S]*stopped/)]);
  const last = await sandbox.run(["logs", "-n", "1"]);
  expect(last.stdout).toMatch(/^\S+ info {2}stopped\n$/);
});

test("start says why the server could not start", async () => {
  const { code, stderr } = await sandbox.run(["start", "--model", "/none.gguf", "--port", "0"]);
  expect([code, stderr]).toEqual([1, expect.stringContaining("/none.gguf")]);
});

test("stop lets a running request end and takes no new one", async () => {
  const server = serveTiny();
  const address = await server.address();
  const stream = await longStream(address);
  await stream.next();
  const stop = sandbox.start(["stop"]);
  await server.printed(/draining/);
  await expect(fetch(`${address}/health`)).rejects.toThrow("fetch failed");
  const text = await stream.rest();
  expect(text).toMatch(/data: \[DONE\]\s*$/);
  expect([(await stop.ended).code, (await server.ended).code]).toEqual([0, 0]);
});

test.each([
  ["stop --now", ["--now"], []],
  ["a drain that takes too long", [], ["--drain-timeout-ms", "1"]],
])("%s ends a running request with an error of its own", async (_, stopFlags, serveFlags) => {
  const server = serveTiny(serveFlags);
  const stream = await longStream(await server.address());
  await stream.next();
  const stop = await sandbox.run(["stop", ...stopFlags]);
  expect([stop.code, (await server.ended).code]).toEqual([0, 0]);
  expect(await stream.rest()).toContain("shutting_down");
});

test("a second stop cuts what the first one lets run", async () => {
  const server = serveTiny();
  const stream = await longStream(await server.address());
  await stream.next();
  const first = sandbox.start(["stop"]);
  await first.printed(/waiting for the requests that run/);
  const second = await sandbox.run(["stop"]);
  expect([second.code, (await first.ended).code, (await server.ended).code]).toEqual([0, 0, 0]);
  expect(await stream.rest()).toContain("shutting_down");
});

test("an engine that is killed comes back by itself, and the log says so", async () => {
  const server = serveTiny();
  const address = await server.address();
  const [engine = 0] = childrenOf(server.child.pid ?? 0);
  process.kill(engine, "SIGKILL");
  await server.printed(/the engine process ended: SIGKILL/);
  await completeOne(address);
  const { stdout } = await sandbox.run(["status"]);
  expect(stdout).toContain("started again 1 times");
});

test("a server that is killed leaves no engine process, and its state does not count", async () => {
  const server = serveTiny();
  await server.address();
  const [engine = 0] = childrenOf(server.child.pid ?? 0);
  expect(isAlive(engine)).toBe(true);
  server.child.kill("SIGKILL");
  await server.ended;
  await gone(engine);
  expect((await sandbox.run(["status"])).code).toBe(3);
});

test.each(["SIGINT", "SIGTERM", "SIGHUP"] as const)("%s while the model loads ends the server cleanly", async (signal) => {
  const server = serveTiny(["--log-level", "debug"]);
  await server.printed(/engine: /);
  const children = childrenOf(server.child.pid ?? 0);
  server.child.kill(signal);
  const { code } = await server.ended;
  expect(code).toBe(0);
  expect(children.filter(isAlive)).toEqual([]);
});

test("a second signal cuts", async () => {
  const server = serveTiny();
  const stream = await longStream(await server.address());
  await stream.next();
  server.child.kill("SIGINT");
  await server.printed(/SIGINT: draining/);
  server.child.kill("SIGTERM");
  await server.printed(/SIGTERM: cutting/);
  expect((await server.ended).code).toBe(0);
});

test("a terminal's signal that reaches the engine process too is the server's business", async () => {
  const server = serveTiny();
  const address = await server.address();
  const children = childrenOf(server.child.pid ?? 0);
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    for (const child of children) process.kill(child, signal);
    await completeOne(address);
  }
  expect(childrenOf(server.child.pid ?? 0)).toEqual(children);
});
