import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import type { RequestId } from "@kvasir/kit";
import { afterEach, describe, expect, test } from "vitest";
import { type ChildMessage, channelToChild, EngineClient, type ParentMessage } from "../src/index.ts";
import type { ScriptedChildConfig } from "./fixtures/scripted-engine-child.ts";
import { defaultOptions, EngineHarness } from "./support/engine-harness.ts";
import { submit } from "./support/ipc-harness.ts";

const entry = new URL("fixtures/scripted-engine-child.ts", import.meta.url);
const children: ChildProcess[] = [];

function forkEngine(execPath = process.execPath): ChildProcess {
  const child = fork(entry, { serialization: "advanced", execArgv: [], execPath });
  children.push(child);
  return child;
}

async function openEngine(): Promise<{ child: ChildProcess; client: EngineClient; exited: Promise<unknown[]> }> {
  const child = forkEngine();
  const exited = once(child, "exit");
  const config: ScriptedChildConfig = { laneTokens: 100_000, engine: defaultOptions };
  const client = await EngineClient.open(channelToChild<ParentMessage<ScriptedChildConfig>, ChildMessage>(child), config);
  return { child, client, exited };
}

afterEach(async () => {
  for (const child of children.splice(0)) {
    if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) continue;
    const exited = once(child, "exit");
    child.kill("SIGKILL");
    await exited;
  }
});

describe("an engine in a child process", () => {
  test("answers like one in this process, drains, and exits by itself", async () => {
    const prompt = Int32Array.from({ length: 200 }, (_, index) => index);
    const direct = new EngineHarness({ laneTokens: 100_000 });
    await direct.run("a", prompt, { topLogprobs: 1, ignoreEos: true });
    const { client, exited } = await openEngine();
    const log = submit(client, "a", { promptTokens: prompt, topLogprobs: 1 });
    await log.until(() => log.tokens.length >= 2);
    expect(await client.status()).toMatchObject({ waiting: 0, prefilling: 0 });
    await client.close(600_000);
    expect(log.last).toMatchObject({ kind: "finished", result: { reason: "length", outputTokens: 8 } });
    const outputs = (events: typeof log.events) => events.filter((event) => event.kind === "output");
    expect(outputs(log.events)).toEqual(outputs(direct.of("a")));
    expect(await exited).toEqual([0, null]);
  });

  test("that is killed fails the requests in flight, once each", async () => {
    const { child, client, exited } = await openEngine();
    const logs = ["a", "b"].map((id) => submit(client, id, { maxTokens: 50_000 }));
    for (const log of logs) await log.until(() => log.tokens.length >= 3);
    const lost = new Promise<boolean>((resolve) => client.onClose(resolve));
    child.kill("SIGKILL");
    expect(await lost).toBe(false);
    expect(await exited).toEqual([null, "SIGKILL"]);
    for (const log of logs) {
      expect(log.last).toMatchObject({
        kind: "failed",
        error: { code: "engine_crashed" },
        result: { outputTokens: log.tokens.length },
      });
      expect(log.events.filter((event) => event.kind === "failed" || event.kind === "finished")).toHaveLength(1);
    }
  });

  test("holds a slow reader and cancels on demand", async () => {
    const { client, exited } = await openEngine();
    const log = submit(client, "slow", { maxTokens: 50_000 });
    await log.until(() => log.tokens.length >= 512);
    const quick = submit(client, "quick", { maxTokens: 20 });
    await quick.end();
    expect(log.tokens).toHaveLength(512);
    client.cancel("slow" as RequestId);
    await log.end();
    expect(log.last).toMatchObject({ kind: "finished", result: { reason: "cancelled", outputTokens: 512 } });
    await client.close(0);
    expect(await exited).toEqual([0, null]);
  });

  test("ends when its server is gone", async () => {
    const { child, client, exited } = await openEngine();
    const log = submit(client, "a", { maxTokens: 50_000 });
    await log.until(() => log.tokens.length >= 3);
    child.disconnect();
    expect(await exited).toEqual([0, null]);
  });

  test("that cannot be started is a failed start", async () => {
    const channel = channelToChild<ParentMessage, ChildMessage>(forkEngine("/nonexistent/node"));
    await expect(EngineClient.open(channel, {})).rejects.toMatchObject({ code: "engine_start_failed" });
  });
});
