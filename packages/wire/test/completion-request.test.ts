import { CodedError, type RequestId } from "@kvasir/kit";
import { describe, expect, it } from "vitest";
import { parseCompletionRequest } from "../src/openai-completion-request.ts";
import { parseDetokenizeRequest, parseTokenizeRequest } from "../src/openai-tokenize.ts";

const parse = (body: unknown) => parseCompletionRequest(body, { id: "cmpl-1" as RequestId, defaultModel: "tiny" });

function refusal(run: () => unknown): { code: string; param: string | undefined } {
  try {
    run();
  } catch (error) {
    if (error instanceof CodedError) return { code: error.code, param: error.param };
    throw error;
  }
  throw new Error("accepted");
}

describe("a completion request", () => {
  const text = (value: string) => ({ kind: "text", text: value, addSpecial: true, parseSpecial: true });

  it.each([
    ["a", [text("a")]],
    [
      ["a", "b"],
      [text("a"), text("b")],
    ],
    [[1, 2], [{ kind: "tokens", tokens: [1, 2] }]],
    [
      [[1], [2, 3]],
      [
        { kind: "tokens", tokens: [1] },
        { kind: "tokens", tokens: [2, 3] },
      ],
    ],
  ])("takes the prompt %j", (prompt, prompts) => {
    expect(parse({ prompt }).request.prompts).toEqual(prompts);
  });

  it.each([
    [undefined, "missing_field", "prompt"],
    [[], "invalid_value", "prompt"],
    [5, "invalid_value", "prompt"],
    [{}, "invalid_value", "prompt"],
    [["a", 1], "invalid_value", "prompt[1]"],
    [["a", [1]], "invalid_value", "prompt[1]"],
    [[1, "a"], "invalid_value", "prompt[1]"],
    [[1, -1], "invalid_value", "prompt[1]"],
    [[1.5], "invalid_value", "prompt[0]"],
    [[[1], []], "invalid_value", "prompt[1]"],
    [[[1], [2 ** 31]], "invalid_value", "prompt[1][0]"],
    [[null], "invalid_value", "prompt[0]"],
  ])("refuses the prompt %j", (prompt, code, param) => {
    expect(refusal(() => parse({ prompt }))).toEqual({ code, param });
  });

  it("takes an integer for logprobs, 0 for those of the sampled tokens alone", () => {
    expect(parse({ prompt: "a", logprobs: 0 }).request.topLogprobs).toBe(0);
    expect(parse({ prompt: "a", logprobs: 5 }).request.topLogprobs).toBe(5);
    expect(parse({ prompt: "a" }).request.topLogprobs).toBeNull();
    expect(refusal(() => parse({ prompt: "a", logprobs: true })).param).toBe("logprobs");
  });

  it("leaves special tokens to the caller", () => {
    expect(parse({ prompt: "a", add_special_tokens: false, parse_special: false }).request.prompts).toEqual([
      { kind: "text", text: "a", addSpecial: false, parseSpecial: false },
    ]);
  });

  it("refuses by name what it cannot do", () => {
    expect(refusal(() => parse({ prompt: "a", suffix: "b" }))).toEqual({ code: "unsupported_field", param: "suffix" });
    expect(refusal(() => parse({ prompt: "a", best_of: 3 }))).toEqual({ code: "unsupported_field", param: "best_of" });
    expect(refusal(() => parse({ prompt: "a", echo: true, logprobs: 1 }))).toEqual({
      code: "unsupported_field",
      param: "echo",
    });
    expect(refusal(() => parse({ prompt: "a", messages: [] }))).toEqual({ code: "unsupported_field", param: "messages" });
    expect(parse({ prompt: "a", best_of: 2, n: 2, echo: true, suffix: "" })).toMatchObject({
      echo: true,
      request: { choices: 2 },
    });
  });
});

describe("tokenize and detokenize requests", () => {
  it("use llama.cpp's names", () => {
    expect(parseTokenizeRequest({ content: "a" })).toEqual({
      text: "a",
      addSpecial: false,
      parseSpecial: true,
      withPieces: false,
    });
    expect(parseTokenizeRequest({ content: "", add_special: true, with_pieces: true }).addSpecial).toBe(true);
    expect(parseDetokenizeRequest({ tokens: [] }).tokens).toEqual([]);
    expect(parseDetokenizeRequest({ tokens: [3, 4] }).tokens).toEqual([3, 4]);
  });

  it("refuse the rest", () => {
    expect(refusal(() => parseTokenizeRequest({})).code).toBe("missing_field");
    expect(refusal(() => parseTokenizeRequest({ content: 5 })).code).toBe("invalid_value");
    expect(refusal(() => parseTokenizeRequest({ content: "a", foo: 1 })).code).toBe("unsupported_field");
    expect(refusal(() => parseDetokenizeRequest({ tokens: "x" })).code).toBe("invalid_value");
    expect(refusal(() => parseDetokenizeRequest({})).code).toBe("missing_field");
    expect(refusal(() => parseDetokenizeRequest({ tokens: [1, "x"] }))).toEqual({ code: "invalid_value", param: "tokens[1]" });
  });
});
