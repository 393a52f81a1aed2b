import { CodedError, type RequestId } from "@kvasir/kit";
import { describe, expect, it } from "vitest";
import { type ParsedRequest, parseChatRequest } from "../src/openai-chat-request.ts";

const messages = [{ role: "user", content: "hi" }];
const parse = (body: unknown): ParsedRequest => parseChatRequest(body, { id: "chatcmpl-1" as RequestId, defaultModel: "tiny" });

function refusal(body: unknown): { code: string; param: string | undefined; message: string } {
  try {
    parse(body);
  } catch (error) {
    if (error instanceof CodedError) return { code: error.code, param: error.param, message: error.message };
    throw error;
  }
  throw new Error("accepted");
}

describe("a chat request", () => {
  it("becomes a generation request with everything that it set", () => {
    const { request, output } = parse({
      model: "m",
      messages,
      max_completion_tokens: 7,
      temperature: 0,
      top_p: 0.5,
      top_k: -1,
      min_p: 0.1,
      typical_p: 0.9,
      repeat_penalty: 1.1,
      repeat_last_n: -1,
      frequency_penalty: -2,
      presence_penalty: 2,
      logit_bias: { "5": -100 },
      seed: 42,
      stop: ["a", "b"],
      n: 2,
      stream: true,
      stream_options: { include_usage: true },
      logprobs: true,
      top_logprobs: 3,
      ignore_eos: true,
      cache_salt: "alice",
      timings_per_token: true,
      return_progress: true,
      chat_template_kwargs: { enable_thinking: false },
    });
    expect(request).toEqual({
      id: "chatcmpl-1",
      protocol: "openai-chat",
      model: "m",
      prompts: [{ kind: "chat", messages, templateArguments: { enable_thinking: false } }],
      choices: 2,
      maxTokens: 7,
      sampling: {
        temperature: 0,
        topP: 0.5,
        topK: 0,
        minP: 0.1,
        typicalP: 0.9,
        repeatPenalty: 1.1,
        repeatLastN: -1,
        frequencyPenalty: -2,
        presencePenalty: 2,
        logitBias: [[5, -100]],
        seed: 42,
      },
      stop: ["a", "b"],
      ignoreEos: true,
      cacheSalt: "alice",
      topLogprobs: 3,
    });
    expect(output).toEqual({ stream: true, includeUsage: true, timingsPerToken: true, returnProgress: true });
  });

  it("needs messages only, and takes null for missing", () => {
    const { request, output } = parse({
      messages,
      temperature: null,
      stop: null,
      tools: null,
      response_format: null,
      max_tokens: null,
      unheard_of: null,
    });
    expect(request).toMatchObject({ model: "tiny", choices: 1, sampling: {}, stop: [], topLogprobs: null });
    expect(request).not.toHaveProperty("maxTokens");
    expect(output.stream).toBe(false);
  });

  it("accepts what cannot change the answer", () => {
    const harmless = {
      user: "u",
      metadata: { a: "b" },
      store: false,
      service_tier: "auto",
      prompt_cache_key: "k",
      parallel_tool_calls: true,
      tools: [],
      tool_choice: "none",
      response_format: { type: "text" },
      modalities: ["text"],
      cache_prompt: true,
      stream_options: {},
    };
    expect(parse({ messages, ...harmless }).request).toEqual(parse({ messages }).request);
  });

  it.each([
    ["tools", [{ type: "function", function: { name: "f" } }]],
    ["tool_choice", "required"],
    ["functions", [{ name: "f" }]],
    ["response_format", { type: "json_object" }],
    ["response_format", { type: "json_schema", json_schema: {} }],
    ["audio", { voice: "x" }],
    ["modalities", ["text", "audio"]],
    ["store", true],
    ["cache_prompt", false],
    ["reasoning_effort", "high"],
    ["web_search_options", {}],
    ["grammar", "root ::= x"],
    ["mirostat", 2],
  ])("refuses %s by name when it would change the answer", (name, value) => {
    expect(refusal({ messages, [name]: value })).toMatchObject({ code: "unsupported_field", param: name });
  });

  it.each([
    ["temprature", "Did you mean temperature?"],
    ["max_token", "Did you mean max_tokens?"],
    ["n_predict", "Use max_tokens."],
    ["frobnicate_everything", "leave it out"],
    ["__proto__x", "leave it out"],
  ])("refuses the unknown field %s with a way out", (name, hint) => {
    const { code, param, message } = refusal({ messages, [name]: 1 });
    expect({ code, param }).toEqual({ code: "unsupported_field", param: name });
    expect(message).toContain(hint);
  });

  it("is not fooled by the names of object members", () => {
    expect(refusal(JSON.parse('{"messages":[{"role":"user","content":"x"}],"__proto__":{"a":1}}')).code).toBe(
      "unsupported_field",
    );
    expect(refusal({ messages, constructor: 1 }).code).toBe("unsupported_field");
    expect(refusal({ messages, toString: 1 }).code).toBe("unsupported_field");
  });

  it.each([
    ["temperature", 2.1],
    ["temperature", "0.5"],
    ["temperature", Number.NaN],
    ["top_p", -0.1],
    ["top_p", 1.5],
    ["top_k", -2],
    ["top_k", 1.5],
    ["min_p", 2],
    ["repeat_penalty", 0],
    ["repeat_last_n", -2],
    ["frequency_penalty", 3],
    ["max_tokens", -1],
    ["max_tokens", 1.5],
    ["max_completion_tokens", -5],
    ["n", 0],
    ["n", 129],
    ["seed", 1.5],
    ["stream", "true"],
    ["stop", ""],
    ["stop", ["a", ""]],
    ["stop", Array.from({ length: 17 }, () => "x")],
    ["stop", 5],
    ["top_logprobs", 21],
    ["logprobs", 1],
    ["logit_bias", { "5": 101 }],
    ["logit_bias", [1]],
    ["model", 7],
    ["model", ""],
    ["stream_options", true],
    ["chat_template_kwargs", []],
  ])("refuses %s = %j with the rule", (name, value) => {
    const { code, param, message } = refusal({ messages, [name]: value });
    expect(code).toBe("invalid_value");
    expect(param?.startsWith(name)).toBe(true);
    expect(message).toContain("must be");
  });

  it("names the logit bias that is no token id", () => {
    expect(refusal({ messages, logit_bias: { hello: 1 } }).param).toBe("logit_bias.hello");
    expect(refusal({ messages, logit_bias: { "-1": 1 } }).code).toBe("invalid_value");
  });

  it("refuses two different limits and top_logprobs without logprobs", () => {
    expect(refusal({ messages, max_tokens: 1, max_completion_tokens: 2 }).param).toBe("max_tokens");
    expect(parse({ messages, max_tokens: 2, max_completion_tokens: 2 }).request.maxTokens).toBe(2);
    expect(refusal({ messages, top_logprobs: 2 }).param).toBe("top_logprobs");
  });

  it("keeps 0 as a limit: prefill only", () => {
    expect(parse({ messages, max_tokens: 0 }).request.maxTokens).toBe(0);
  });

  it("takes llama.cpp's -1 for any seed", () => {
    expect(parse({ messages, seed: -1 }).request.sampling).not.toHaveProperty("seed");
  });

  it.each([[null], [[]], ["text"], [1], [true]])("refuses the body %j", (body) => {
    expect(["invalid_value", "missing_field"]).toContain(refusal(body).code);
  });

  it("names missing messages", () => {
    expect(refusal({})).toMatchObject({ code: "missing_field", param: "messages" });
    expect(refusal({ messages: [] })).toMatchObject({ code: "invalid_value", param: "messages" });
    expect(refusal({ messages: "hi" })).toMatchObject({ code: "invalid_value", param: "messages" });
  });
});

describe("the messages of a chat request", () => {
  const read = (message: object) => {
    const prompt = parse({ messages: [message] }).request.prompts[0];
    return prompt?.kind === "chat" ? prompt.messages[0] : undefined;
  };

  it.each([[null], [""], [[]], [undefined]])("may have an assistant turn with content %j", (content) => {
    expect(read({ role: "assistant", content, tool_calls: null })).toMatchObject({
      role: "assistant",
      content: content === "" ? "" : null,
    });
  });

  it("keep thinking and tool calls of the history", () => {
    const call = { id: "c1", type: "function", function: { name: "f", arguments: "{}" } };
    expect(read({ role: "assistant", content: null, reasoning_content: "hm", tool_calls: [{ ...call, index: 0 }] })).toEqual({
      role: "assistant",
      content: null,
      reasoning_content: "hm",
      tool_calls: [call],
    });
    expect(read({ role: "assistant", reasoning: "hm" })).toMatchObject({ content: null, reasoning_content: "hm" });
    expect(read({ role: "tool", content: "4", tool_call_id: "c1" })).toEqual({
      role: "tool",
      content: "4",
      tool_call_id: "c1",
    });
  });

  it("take an assistant's refusal for what it said", () => {
    expect(read({ role: "assistant", content: null, refusal: "No." })).toEqual({ role: "assistant", content: "No." });
  });

  it("take text parts", () => {
    const parts = [
      { type: "text", text: "a", cache_control: { type: "ephemeral" } },
      { type: "text", text: "b" },
    ];
    expect(read({ role: "developer", content: parts })).toEqual({
      role: "developer",
      content: [
        { type: "text", text: "a" },
        { type: "text", text: "b" },
      ],
    });
  });

  it("accept what clients send back from answers", () => {
    expect(read({ role: "assistant", content: "x", refusal: null, annotations: [], audio: null, function_call: null })).toEqual(
      { role: "assistant", content: "x" },
    );
  });

  it.each([
    [{ role: "robot", content: "x" }, "invalid_value", "messages[0].role"],
    [{ content: "x" }, "missing_field", "messages[0].role"],
    [{ role: "user" }, "missing_field", "messages[0].content"],
    [{ role: "user", content: null }, "missing_field", "messages[0].content"],
    [{ role: "user", content: [] }, "invalid_value", "messages[0].content"],
    [{ role: "user", content: 5 }, "invalid_value", "messages[0].content"],
    [{ role: "user", content: [{ type: "text" }] }, "missing_field", "messages[0].content[0].text"],
    [{ role: "user", content: [{ text: "x" }] }, "missing_field", "messages[0].content[0].type"],
    [{ role: "user", content: ["x"] }, "invalid_value", "messages[0].content[0]"],
    [
      { role: "user", content: [{ type: "image_url", image_url: { url: "x" } }] },
      "unsupported_field",
      "messages[0].content[0]",
    ],
    [{ role: "user", content: [{ type: "input_audio", input_audio: {} }] }, "unsupported_field", "messages[0].content[0]"],
    [{ role: "user", content: "x", name: 5 }, "invalid_value", "messages[0].name"],
    [{ role: "user", content: "x", mood: "good" }, "unsupported_field", "messages[0].mood"],
    [{ role: "assistant", content: "x", tool_calls: [{ id: "a" }] }, "missing_field", "messages[0].tool_calls[0].type"],
    ["hi", "invalid_value", "messages[0]"],
  ])("are refused with the place: %j", (message, code, param) => {
    expect(refusal({ messages: [message] })).toMatchObject({ code, param });
  });
});
