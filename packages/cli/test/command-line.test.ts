/** What the command says before any server runs: words, values, refusals. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { tinyModelPath } from "../../../fixtures/tiny-models.ts";
import { Sandbox } from "./support/command.ts";

const sandbox = new Sandbox();
afterAll(() => sandbox.close());

test("--version prints the version and --help the commands", async () => {
  const [version, help] = await Promise.all([sandbox.run(["--version"]), sandbox.run(["--help"])]);
  expect([version.code, version.stdout]).toEqual([0, "0.1.0\n"]);
  expect(help.code).toBe(0);
  for (const word of ["serve", "start", "stop", "status", "logs", "pull", "models", "doctor"])
    expect(help.stdout).toMatch(new RegExp(`^ {2}${word} `, "m"));
});

test("an unknown command or flag is refused with the likely one", async () => {
  const [command, flag] = await Promise.all([sandbox.run(["sreve"]), sandbox.run(["serve", "--prot", "1"])]);
  expect([command.code, command.stderr]).toEqual([2, expect.stringContaining("Did you mean serve?")]);
  expect([flag.code, flag.stderr]).toEqual([2, expect.stringContaining("Did you mean --port?")]);
});

test("--print-config prints one JSON with values, sources and the model's file, and no secret", async () => {
  const model = tinyModelPath("tiny-qwen3");
  mkdirSync(join(sandbox.folder, "config", "kvasir"), { recursive: true });
  const file = join(sandbox.folder, "config", "kvasir", "config.json");
  writeFileSync(file, JSON.stringify({ batchTokens: 128, port: 1 }));
  const { code, stdout } = await sandbox.run(["serve", "--print-config", "--model", model, "--port", "2"], {
    KVASIR_API_KEY: "very-secret",
  });
  expect(code).toBe(0);
  expect(stdout).not.toContain("very-secret");
  expect(JSON.parse(stdout)).toMatchObject({
    file,
    modelPath: model,
    settings: {
      model: { value: model, source: "flag" },
      port: { value: 2, source: "flag" },
      batchTokens: { value: 128, source: "file" },
      apiKey: { value: "[redacted]", source: "environment" },
      itlTargetMs: { value: 250, source: "default" },
    },
  });
});

test.each([
  [["--port", "99999"], "--port is 99999; it must be a whole number from 0 to 65535"],
  [["--kv-dtype", "f17"], '--kv-dtype is "f17"; it must be one of f32, f16'],
  [["--config", "/none.json"], "the configuration file /none.json cannot be read"],
  [["--host", "0.0.0.0"], "--host 0.0.0.0 can be reached from other machines, so an API key is needed"],
  [["--host", "0.0.0.0", "--api-key-file", "/none"], "--api-key-file /none cannot be read"],
  [["--api-key", "with space"], "The API key has characters that an HTTP header cannot carry"],
])("serve %j stops with the value, the rule and the way out", async (flags, message) => {
  const { code, stdout, stderr } = await sandbox.run(["serve", ...flags]);
  expect([code, stdout]).toEqual([2, ""]);
  expect(stderr).toContain(message);
  expect(stderr).not.toContain("    at ");
});

test("a model that is not there is told before anything starts", async () => {
  const { code, stderr } = await sandbox.run(["serve", "--model", "/none.gguf", "--port", "0"]);
  expect([code, stderr]).toEqual([1, expect.stringContaining("/none.gguf")]);
});

test("a context that does not fit into memory is refused with the number asked, the number there is and what would fit", async () => {
  const flags = [
    "--model",
    tinyModelPath("tiny-qwen3"),
    "--port",
    "0",
    "--max-concurrency",
    "256",
    "--max-context-tokens",
    "8000000",
  ];
  const { code, stderr } = await sandbox.run(["serve", ...flags]);
  expect(code).toBe(1);
  expect(stderr).toMatch(
    /256 lanes of 8,000,000 tokens need [\d.]+ GiB of KV memory \([\d,]+ bytes\); [\d.]+ \wiB \([\d,]+ bytes\) are there/,
  );
  expect(stderr).toMatch(/use --max-context-tokens \d+/);
});

test("without a server, stop and logs say so and status has its own exit code", async () => {
  const [stop, logs, status] = await Promise.all([sandbox.run(["stop"]), sandbox.run(["logs"]), sandbox.run(["status"])]);
  expect([stop.code, stop.stderr]).toEqual([1, expect.stringContaining("No Kvasir server runs")]);
  expect([logs.code, logs.stderr]).toEqual([1, expect.stringContaining("none has left a log")]);
  expect([status.code, status.stdout]).toEqual([3, expect.stringContaining("`kvasir start`")]);
});

test("models lists what can be had, and rm of what is not there is told", async () => {
  const [models, removal] = await Promise.all([sandbox.run(["models"]), sandbox.run(["models", "rm", "nothing.gguf"])]);
  expect([models.code, models.stdout]).toEqual([0, expect.stringContaining("smollm2-135m-instruct")]);
  expect(removal.code).toBe(1);
});

test("doctor checks everything a start needs", async () => {
  const { code, stdout } = await sandbox.run(["doctor", "--model", tinyModelPath("tiny-qwen3"), "--port", "0"]);
  expect(code).toBe(0);
  for (const name of ["configuration", "node", "library", "processors", "model", "cache", "port"])
    expect(stdout).toMatch(new RegExp(`^(ok|warn) +${name} `, "m"));
  expect(stdout).toContain("computes with the model");
});

test("doctor names what would keep a server from starting", async () => {
  const { code, stdout } = await sandbox.run(["doctor", "--model", "/none.gguf", "--library-directory", "/none"]);
  expect(code).toBe(1);
  expect(stdout).toMatch(/^FAIL +library .*\/none/m);
  expect(stdout).toMatch(/^FAIL +model .*\/none\.gguf/m);
});
