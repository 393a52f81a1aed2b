/** What the real model's text looks like on the wire: stops, usage, choices, logprobs, streamed against whole. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { postJson, StreamCall, textOf } from "../support/http-client.ts";
import { KvasirProcess } from "../support/kvasir-process.ts";

interface Answer {
  readonly choices: ReadonlyArray<{
    readonly index: number;
    readonly text: string;
    readonly finish_reason: string;
    readonly logprobs: { readonly tokens: string[]; readonly token_logprobs: number[] } | null;
  }>;
  readonly usage: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
  };
  readonly timings: Record<string, number>;
}

describe("the real server's text", () => {
  let server: KvasirProcess;
  let url: string;
  beforeAll(async () => {
    server = new KvasirProcess(["--max-context-tokens", "2048", "--max-concurrency", "4"]);
    url = await server.ready();
    // From here on its prompt is in a lane: every run resumes at the same place.
    await complete();
  });
  afterAll(() => server.stop());

  const greedy = { prompt: "Once upon a time", max_tokens: 120, temperature: 0, ignore_eos: true };
  const complete = async (body: object = {}) =>
    (await postJson(`${url}/v1/completions`, { ...greedy, ...body })).body as unknown as Answer;
  const stream = async (body: object = {}) => {
    const call = new StreamCall(`${url}/v1/completions`, { ...greedy, ...body, stream: true });
    await call.toEnd();
    return call;
  };

  it("is the same streamed and whole, with the same usage, one [DONE] and usage only when asked", async () => {
    const whole = await complete();
    const plain = await stream();
    expect(textOf(plain)).toBe(whole.choices[0]?.text);
    expect(plain.chunks().some((chunk) => "usage" in chunk)).toBe(false);
    const counted = await stream({ stream_options: { include_usage: true } });
    expect(counted.doneCount).toBe(1);
    expect(counted.chunks().at(-1)).toMatchObject({
      choices: [],
      usage: { prompt_tokens: whole.usage.prompt_tokens, completion_tokens: 120 },
    });
    expect(
      counted
        .chunks()
        .slice(0, -1)
        .every((chunk) => chunk.usage === null),
    ).toBe(true);
  });

  it("ends exactly before a stop text that goes over several tokens, and loses nothing to one that almost comes", async () => {
    const {
      choices: [first],
    } = await complete();
    const text = first?.text ?? "";
    for (const start of [10, 33, 57]) {
      const stop = text.slice(start, start + 5);
      const end = text.indexOf(stop);
      const cut = await complete({ stop: [stop] });
      expect(cut.choices[0]).toMatchObject({ text: text.slice(0, end), finish_reason: "stop" });
      const streamed = await stream({ stop: [stop] });
      expect(textOf(streamed)).toBe(text.slice(0, end));
      // A stop that begins like the text and then differs.
      const never = `${text.slice(start, start + 4)}\u0000`;
      expect(textOf(await stream({ stop: [never, "\u0001never"] }))).toBe(text);
    }
  });

  it("has every choice of n with its index and its end, usage once", async () => {
    const body = { n: 3, seed: 7, temperature: 1, max_tokens: 12 };
    const whole = await complete(body);
    expect(whole.choices.map(({ index, finish_reason }) => [index, finish_reason])).toEqual(
      [0, 1, 2].map((index) => [index, "length"]),
    );
    expect(whole.usage.completion_tokens).toBe(36);
    const call = await stream({ ...body, stream_options: { include_usage: true } });
    const ends = call
      .chunks()
      .flatMap((chunk) => chunk.choices.filter((choice) => choice.finish_reason !== null).map((choice) => choice.index));
    expect(ends.toSorted((a, b) => a - b)).toEqual([0, 1, 2]);
    expect(call.chunks().flatMap((chunk) => (chunk.usage ? [chunk.usage.completion_tokens] : []))).toEqual([36]);
  });

  it("tells logprobs that fit the text, and timings that are numbers", async () => {
    const {
      choices: [choice],
      timings,
      usage,
    } = await complete({ logprobs: 2, max_tokens: 10 });
    expect(choice?.logprobs?.tokens.length).toBe(10);
    expect(choice?.logprobs?.token_logprobs.every((logprob) => logprob <= 0)).toBe(true);
    expect(Object.values(timings).every((value) => Number.isFinite(value) && value >= 0)).toBe(true);
    expect((timings.cache_n ?? 0) + (timings.prompt_n ?? 0)).toBe(usage.prompt_tokens);
  });

  it("repeats itself for the same seed when it is alone and resumes at the same place", async () => {
    // What cannot be promised in company is said in docs/serving.md.
    const body = { prompt: `A seed grows ${"and grows ".repeat(20)}`, temperature: 1, seed: 11, max_tokens: 40 };
    await complete(body);
    const first = await complete(body);
    expect(first.usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(0);
    expect((await complete(body)).choices[0]?.text).toBe(first.choices[0]?.text);
    expect((await complete({ ...body, seed: 12 })).choices[0]?.text).not.toBe(first.choices[0]?.text);
  });
});
