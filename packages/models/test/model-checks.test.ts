import { GIB } from "@kvasir/kit";
import { describe, expect, it } from "vitest";
import { tinyModelPath } from "../../../fixtures/tiny-models.ts";
import { readGgufFacts } from "../src/gguf-facts.ts";
import { checkRunnable, usableMemoryBytes } from "../src/model-checks.ts";
import { codedErrorOf } from "./support/coded-errors.ts";

describe("checks before the start", () => {
  it("lets a model through that is known and fits", async () => {
    checkRunnable("m.gguf", await readGgufFacts(tinyModelPath("tiny-qwen3")), GIB);
    expect(usableMemoryBytes()).toBeGreaterThan(0);
  });

  it("lists the known architectures when one is unknown", async () => {
    const facts = { ...(await readGgufFacts(tinyModelPath("tiny-qwen3"))), architecture: "gpt-9" };
    const error = await codedErrorOf(() => checkRunnable("m.gguf", facts, GIB));
    expect(error.code).toBe("model_architecture_unknown");
    expect(error.message).toMatch(/"gpt-9".*qwen3moe/);
  });

  it("gives both numbers when the weights exceed the memory", async () => {
    const facts = { ...(await readGgufFacts(tinyModelPath("tiny-qwen3"))), tensorBytes: 40 * GIB };
    const error = await codedErrorOf(() => checkRunnable("m.gguf", facts, 32 * GIB));
    expect(error.code).toBe("model_too_large");
    expect(error.message).toContain("40.0 GiB of weights (42,949,672,960 bytes, F32)");
    expect(error.message).toContain("32.0 GiB of memory");
  });
});
