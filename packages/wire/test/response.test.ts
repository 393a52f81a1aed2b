import { describe, expect, it } from "vitest";
import type { ChoiceReport, GenerationEvent, OutputLogprob, Usage } from "../src/generation.ts";
import { chatDialect } from "../src/openai-chat-response.ts";
import { completionDialect } from "../src/openai-completion-response.ts";
import type { OutputOptions } from "../src/openai-fields.ts";
import { type Chunk, type Dialect, OpenAiBody, OpenAiStream } from "../src/openai-response.ts";

const facts = { id: "chatcmpl-1", model: "tiny", createdSeconds: 1_700_000_000, fingerprint: "fp" };
const usage: Usage = { promptTokens: 10, cachedTokens: 4, outputTokens: 3 };
const report: ChoiceReport = {
  choice: 0,
  promptTokens: 10,
  cachedTokens: 4,
  hostTokens: 0,
  diskTokens: 0,
  restoredBytes: 0,
  possibleTokens: 4,
  computedTokens: 6,
  outputTokens: 3,
  resetReason: "none",
  divergedAt: null,
  draftedTokens: 0,
  acceptedTokens: 0,
  meanDecodeBatch: 1,
  lane: 0,
  timings: { queueMs: 1, restoreMs: 0, prefillMs: 12, decodeMs: 20 },
};
const timings = {
  cache_host_n: 0,
  cache_disk_n: 0,
  cache_possible_n: 4,
  cache_n: 4,
  prompt_n: 6,
  prompt_ms: 12,
  prompt_per_token_ms: 2,
  prompt_per_second: 500,
  predicted_n: 3,
  predicted_ms: 20,
  predicted_per_token_ms: 10,
  predicted_per_second: 100,
  queue_ms: 1,
  restore_ms: 0,
  prefill_ms: 12,
  decode_ms: 20,
};
const quiet: OutputOptions = { stream: true, includeUsage: false, timingsPerToken: false, returnProgress: false };

const output = (choice: number, text: string, logprobs?: OutputLogprob[]): GenerationEvent => ({
  kind: "output",
  choice,
  text,
  tokens: [1],
  ...(logprobs ? { logprobs } : {}),
});
const end = (choice: number, reason: "stop" | "length" = "stop"): GenerationEvent => ({
  kind: "choice-finished",
  choice,
  reason,
  stopText: null,
});
const finished: GenerationEvent = { kind: "finished", usage, reports: [report] };

function stream(
  events: readonly GenerationEvent[],
  options: Partial<OutputOptions> = {},
  dialect: Dialect = chatDialect,
  logprobs = false,
): Chunk[] {
  const renderer = new OpenAiStream(facts, dialect, { ...quiet, ...options }, logprobs, () => ({
    ...report,
    sinceAdmissionMs: 5,
  }));
  return events.flatMap((event) => renderer.chunksOf(event));
}

function body(events: readonly GenerationEvent[], dialect: Dialect = chatDialect, logprobs = false): object {
  const collector = new OpenAiBody(facts, dialect, logprobs);
  for (const event of events) collector.take(event);
  return collector.body(usage, [report]);
}

const head = {
  id: "chatcmpl-1",
  object: "chat.completion.chunk",
  created: 1_700_000_000,
  model: "tiny",
  system_fingerprint: "fp",
};

describe("a chat stream", () => {
  it("has a role chunk, deltas, one finish chunk with timings", () => {
    expect(stream([output(0, "He"), output(0, ""), output(0, "llo"), end(0), finished])).toEqual([
      {
        ...head,
        choices: [{ index: 0, delta: { role: "assistant", content: "", refusal: null }, logprobs: null, finish_reason: null }],
      },
      { ...head, choices: [{ index: 0, delta: { content: "He" }, logprobs: null, finish_reason: null }] },
      { ...head, choices: [{ index: 0, delta: { content: "llo" }, logprobs: null, finish_reason: null }] },
      { ...head, choices: [{ index: 0, delta: {}, logprobs: null, finish_reason: "stop" }], timings },
    ]);
  });

  it("sends usage once, with no choices, only when asked, and null before", () => {
    const chunks = stream([output(0, "x"), end(0, "length"), finished], { includeUsage: true });
    expect(chunks.at(-1)).toEqual({
      ...head,
      choices: [],
      usage: { prompt_tokens: 10, completion_tokens: 3, total_tokens: 13, prompt_tokens_details: { cached_tokens: 4 } },
      timings,
    });
    expect(chunks.slice(0, -1).map((chunk) => chunk.usage)).toEqual([null, null, null]);
    expect(chunks.slice(0, -1).some((chunk) => "timings" in chunk)).toBe(false);
    expect(stream([output(0, "x"), end(0), finished]).some((chunk) => "usage" in chunk)).toBe(false);
  });

  it("gives each of several choices its index, its role and its end", () => {
    const chunks = stream([output(1, "b"), output(0, "a"), end(1), output(0, "a"), end(0, "length"), finished]);
    const seen = chunks.map((chunk) => chunk.choices[0]) as Array<{
      index: number;
      delta: { role?: string; content?: string };
      finish_reason: string | null;
    }>;
    expect(seen.map(({ index, delta, finish_reason }) => [index, delta.role ?? delta.content ?? finish_reason])).toEqual([
      [1, "assistant"],
      [1, "b"],
      [0, "assistant"],
      [0, "a"],
      [1, "stop"],
      [0, "a"],
      [0, "length"],
    ]);
    expect(chunks.filter((chunk) => chunk.timings).length).toBe(1);
  });

  it("opens and ends a choice that has no output", () => {
    expect(stream([end(0, "length"), finished]).map((chunk) => chunk.choices[0])).toMatchObject([
      { delta: { role: "assistant" } },
      { finish_reason: "length" },
    ]);
  });

  it("reports progress and per-token timings when asked", () => {
    const prefill: GenerationEvent = { kind: "prefill", choice: 0, processedTokens: 8, totalTokens: 10 };
    const [progress, , token] = stream([prefill, output(0, "x")], { returnProgress: true, timingsPerToken: true });
    expect(progress?.prompt_progress).toEqual({ total: 10, cache: 4, processed: 8, time_ms: 5 });
    expect(token?.timings).toEqual(timings);
    expect(stream([prefill])).toEqual([]);
  });

  it("carries logprobs in OpenAI's shape, also of text that is held back", () => {
    const logprob = { token: "x", bytes: [120], logprob: -0.5, top: [{ token: "y", bytes: [121], logprob: -1 }] };
    const [, chunk] = stream([output(0, "", [logprob])], {}, chatDialect, true);
    expect(chunk?.choices).toEqual([
      {
        index: 0,
        delta: { content: "" },
        logprobs: {
          content: [{ token: "x", logprob: -0.5, bytes: [120], top_logprobs: [{ token: "y", logprob: -1, bytes: [121] }] }],
          refusal: null,
        },
        finish_reason: null,
      },
    ]);
  });
});

describe("a chat body", () => {
  it("has the text of the stream", () => {
    expect(body([output(0, "He"), output(0, "llo"), end(0), finished])).toEqual({
      id: "chatcmpl-1",
      object: "chat.completion",
      created: 1_700_000_000,
      model: "tiny",
      system_fingerprint: "fp",
      choices: [
        { index: 0, message: { role: "assistant", content: "Hello", refusal: null }, logprobs: null, finish_reason: "stop" },
      ],
      usage: { prompt_tokens: 10, completion_tokens: 3, total_tokens: 13, prompt_tokens_details: { cached_tokens: 4 } },
      timings,
    });
  });

  it("orders choices by index, an empty one too", () => {
    const { choices } = body([output(1, "b"), end(1), end(0, "length")]) as {
      choices: Array<{ index: number; finish_reason: string }>;
    };
    expect(choices.map(({ index, finish_reason }) => [index, finish_reason])).toEqual([
      [0, "length"],
      [1, "stop"],
    ]);
  });
});

describe("a completion", () => {
  const logprobs: OutputLogprob[] = [
    { token: "é", bytes: [0xc3, 0xa9], logprob: -1, top: [{ token: "e", bytes: [101], logprob: -2 }] },
    { token: "\ufffd", bytes: [0xf0, 0x9f], logprob: -3, top: [] },
    { token: "\ufffd", bytes: [0x98, 0x80], logprob: -4, top: [] },
    { token: "!", bytes: [33], logprob: -5, top: [] },
  ];
  const legacy = {
    tokens: ["é", "bytes:\\xf0\\x9f", "bytes:\\x98\\x80", "!"],
    token_logprobs: [-1, -3, -4, -5],
    top_logprobs: [{ e: -2 }, {}, {}, {}],
    text_offset: [0, 1, 1, 2],
  };

  it("streams text with the older logprobs, offsets going on from chunk to chunk", () => {
    const dialect = completionDialect(() => "");
    const chunks = stream(
      [output(0, "é", logprobs.slice(0, 2)), output(0, "😀!", logprobs.slice(2)), end(0), finished],
      {},
      dialect,
      true,
    );
    const choices = chunks.map((chunk) => chunk.choices[0]) as Array<{ text: string; logprobs: typeof legacy | null }>;
    expect(choices.map(({ text }) => text)).toEqual(["é", "😀!", ""]);
    expect(choices.flatMap((choice) => choice.logprobs?.text_offset ?? [])).toEqual(legacy.text_offset);
    expect(chunks[0]?.object).toBe("text_completion");
  });

  it("has the same in one body, after the echo of its prompt", () => {
    const { choices } = body(
      [output(0, "é😀!", logprobs), end(0)],
      completionDialect(() => "Say: "),
      true,
    ) as { choices: object[] };
    expect(choices).toEqual([{ text: "Say: é😀!", index: 0, logprobs: legacy, finish_reason: "stop" }]);
  });

  it("never divides by zero", () => {
    const nothing = {
      ...report,
      cachedTokens: 10,
      computedTokens: 0,
      outputTokens: 0,
      timings: { queueMs: 0, restoreMs: 0, prefillMs: 0, decodeMs: 0 },
    };
    const collector = new OpenAiBody(
      facts,
      completionDialect(() => ""),
      false,
    );
    const rendered = collector.body(usage, [nothing]) as { timings: Record<string, number> };
    expect(Object.values(rendered.timings).every((value) => Number.isFinite(value))).toBe(true);
    expect(rendered.timings.predicted_per_second).toBe(0);
  });
});
