import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CodedError } from "@kvasir/kit";
import { afterEach, beforeEach, expect, test } from "vitest";
import { chooseServer } from "../src/servers/choose-server.ts";
import { checkPort } from "../src/servers/port-holder.ts";
import { isRunning, type ServerState, ServerStates, startOf } from "../src/servers/server-state.ts";

let cacheDir = "";
beforeEach(() => {
  cacheDir = mkdtempSync(join(tmpdir(), "kvasir-states-"));
});
afterEach(() => rmSync(cacheDir, { recursive: true, force: true }));

const state = (change: Partial<ServerState> = {}): ServerState => ({
  version: 1,
  pid: process.pid,
  processStart: startOf(process.pid),
  startedAtMs: 1_700_000_000_000,
  host: "127.0.0.1",
  port: 8484,
  address: "http://127.0.0.1:8484",
  model: "tiny",
  modelPath: "/tiny.gguf",
  contextTokens: 1024,
  maxConcurrency: 4,
  lanes: 4,
  kvBytes: 1,
  logFile: null,
  needsApiKey: false,
  ...change,
});

test("a published state is listed until it is withdrawn", () => {
  const states = new ServerStates(cacheDir);
  const withdrawLate = states.publish(state({ port: 9 }));
  const withdraw = states.publish(state({ host: "::1" }));
  expect(states.list().map(({ port }) => port)).toEqual([9, 8484]);
  withdraw();
  withdrawLate();
  expect(states.list()).toEqual([]);
  expect(readdirSync(join(cacheDir, "run"))).toEqual([]);
});

test("the state of a process that is gone, or whose id another process has now, does not count", async () => {
  const child = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"]);
  await once(child, "spawn");
  const pid = child.pid ?? 0;
  const alive = state({ pid, processStart: startOf(pid) });
  new ServerStates(cacheDir).publish(alive);
  expect(new ServerStates(cacheDir).list()).toHaveLength(1);
  if (startOf(pid) !== null) expect(isRunning({ ...alive, processStart: "1" })).toBe(false);
  child.kill("SIGKILL");
  await once(child, "exit");
  expect(new ServerStates(cacheDir).list()).toEqual([]);
});

test("files that are no states are passed over", () => {
  mkdirSync(join(cacheDir, "run"));
  writeFileSync(join(cacheDir, "run", "a.json"), "{");
  writeFileSync(join(cacheDir, "run", "b.json"), JSON.stringify({ ...state(), version: 99 }));
  expect(new ServerStates(cacheDir).list()).toEqual([]);
});

test("a server that ends does not remove the state of the one that took its place", () => {
  const states = new ServerStates(cacheDir);
  const withdrawOld = states.publish(state({ pid: 1 }));
  states.publish(state());
  withdrawOld();
  expect(states.list()).toHaveLength(1);
});

test("the only server needs no port, several need one, none is an error", () => {
  const two = [state({ port: 1 }), state({ port: 2 })];
  expect(chooseServer([state()], null).port).toBe(8484);
  expect(chooseServer(two, 2).port).toBe(2);
  expect(() => chooseServer(two, null)).toThrow(/2 servers run; say which one: --port 1/);
  expect(() => chooseServer(two, 3)).toThrow(/No Kvasir server runs on port 3/);
  expect(() => chooseServer([], null)).toThrow(/kvasir start/);
});

test("a port that is taken names its holder", async () => {
  const holder = createServer().listen(0, "127.0.0.1");
  await once(holder, "listening");
  const { port } = holder.address() as AddressInfo;
  await expect(checkPort("127.0.0.1", port, [])).rejects.toThrow(`Port ${port} on 127.0.0.1 is held by another program`);
  const byKvasir = checkPort("127.0.0.1", port, [state({ port })]);
  await expect(byKvasir).rejects.toThrow(
    `held by Kvasir (process ${process.pid}, model tiny, since 2023-11-14T22:13:20.000Z); \`kvasir stop --port ${port}\``,
  );
  await expect(byKvasir).rejects.toSatisfy((error) => error instanceof CodedError && error.code === "port_in_use");
  holder.close();
  await once(holder, "close");
  await expect(checkPort("127.0.0.1", port, [])).resolves.toBeUndefined();
});

test("an address that is not this machine's is refused", async () => {
  await expect(checkPort("203.0.113.7", 8484, [])).rejects.toThrow(/--host 203.0.113.7 cannot be listened on/);
});
