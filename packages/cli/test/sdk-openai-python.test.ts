/** The official `openai` package for Python against the real server on the real model. */

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { beforeAll, expect, test } from "vitest";
import { pythonWith } from "./support/python-packages.ts";
import { sharedServer } from "./support/shared-server.ts";

const VERSION = "3.57.0";

interface Seen {
  readonly version: string;
  readonly models: readonly string[];
  readonly chat: { readonly text: string; readonly completion_tokens: number };
  readonly streamed_chat: {
    readonly pieces: readonly string[];
    readonly reasons: readonly string[];
    readonly completion_tokens: number;
  };
  readonly completion: string;
  readonly streamed_completion: { readonly text: string; readonly completion_tokens: number };
  readonly refused: { readonly status: number; readonly code: string };
  readonly many: readonly string[];
}

let missing: string | undefined;
let model = "";
let seen: Seen;

beforeAll(async () => {
  const python = await pythonWith(`openai==${VERSION}`);
  if ("missing" in python) {
    // In CI a machine without Python is a broken machine, not a reason to test less.
    if (process.env["CI"]) throw new Error(python.missing);
    missing = python.missing;
    return;
  }
  const server = await sharedServer();
  model = server.model;
  const script = fileURLToPath(new URL("./support/openai_client.py", import.meta.url));
  const { stdout } = await promisify(execFile)(python.command, [script, `${server.address}/v1`, model], {
    env: python.environment,
  });
  seen = JSON.parse(stdout) as Seen;
});

test("chat and completions stream the text that they give whole", (context) => {
  context.skip(missing !== undefined, missing);
  expect(seen.version).toBe(VERSION);
  expect(seen.chat.text).toContain("Paris");
  expect(seen.streamed_chat.pieces.length).toBeGreaterThan(3);
  expect(seen.streamed_chat.pieces.join("")).toBe(seen.chat.text);
  expect(seen.streamed_chat.reasons).toEqual(["stop"]);
  expect(seen.streamed_chat.completion_tokens).toBe(seen.chat.completion_tokens);
  expect(seen.streamed_completion).toEqual({ text: seen.completion, completion_tokens: 12 });
});

test("the model is listed and another one is refused with the package's own error", (context) => {
  context.skip(missing !== undefined, missing);
  expect(seen.models).toContain(model);
  expect(seen.refused).toEqual({ status: 404, code: "model_not_found" });
});

test("more async streams than lanes all end with text", (context) => {
  context.skip(missing !== undefined, missing);
  expect(seen.many).toHaveLength(6);
  for (const text of seen.many) expect(text).not.toBe("");
});
