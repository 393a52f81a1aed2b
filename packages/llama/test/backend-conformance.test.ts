import { backendConformance } from "@kvasir/engine/testing";
import { describe, expect, test } from "vitest";
import { openLlamaBackend } from "../src/index.ts";
import { type TinyModelName, tinyModelPath } from "../../../fixtures/tiny-models.ts";

const text = "naïve 🙂 text";
const texts = [{ tokens: [...new TextEncoder().encode(text)], text }];

const models: readonly TinyModelName[] = ["tiny-qwen3", "tiny-gemma3", "tiny-deepseek2", "tiny-qwen35"];

describe.each(models)("libllama on %s", (model) => {
  const open = () =>
    openLlamaBackend({
      modelPath: tinyModelPath(model),
      laneCount: 3,
      laneTokens: 256,
      batchTokens: 64,
      outputRows: 5,
      // two threads on a busy host wait for each other at every graph node: minutes instead of seconds
      threads: 1,
      synchronousRows: 8,
    });
  // float kernels: two ways of computing the same differ by up to a thousandth of the spread (fixtures/models/README.md)
  test.for(backendConformance({ open, toleranceShare: 0.01, texts }))("$name", async ({ run }) => {
    await expect(run()).resolves.toBeUndefined();
  });
});
