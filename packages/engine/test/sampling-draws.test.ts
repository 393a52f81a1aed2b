import { SeededRandom } from "@kvasir/kit";
import { describe, expect, test } from "vitest";
import { type SamplingSettings, TokenHistory, TokenSampler } from "../src/index.ts";
import { settingsWith } from "./sampling-settings.ts";

const noHistory = new TokenHistory(new Int32Array(0));

function sampleOnce(logits: readonly number[], settings: SamplingSettings): number {
  return new TokenSampler(settings, logits.length, new SeededRandom(settings.seed)).sample(
    Float32Array.from(logits),
    noHistory,
  );
}

describe("a draw", () => {
  test("follows softmax(logits / temperature)", () => {
    const logits = Float32Array.from([0, 1, 2, -1]);
    const temperature = 0.7;
    const weights = [...logits].map((logit) => Math.exp(logit / temperature));
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    const sampler = new TokenSampler(settingsWith({ temperature }), logits.length, new SeededRandom(11));
    const counts = [0, 0, 0, 0];
    const draws = 40_000;
    for (let draw = 0; draw < draws; draw++) counts[sampler.sample(logits, noHistory)]! += 1;
    const chiSquared = weights.reduce((sum, weight, token) => {
      const expected = (weight / total) * draws;
      return sum + ((counts[token] ?? 0) - expected) ** 2 / expected;
    }, 0);
    // 3 degrees of freedom: 99.9 % of true samples stay below 16.27. The seed is fixed, so this cannot flicker.
    expect(chiSquared).toBeLessThan(16.27);
  });

  test("repeats with its seed and changes with another", () => {
    const logits = Float32Array.from({ length: 500 }, (_, token) => Math.sin(token));
    const sequence = (seed: number): number[] => {
      const sampler = new TokenSampler(settingsWith({ seed }), logits.length, new SeededRandom(seed));
      return Array.from({ length: 50 }, () => sampler.sample(logits, noHistory));
    };
    expect(sequence(5)).toEqual(sequence(5));
    expect(sequence(5)).not.toEqual(sequence(6));
  });

  test("takes one random number, a greedy choice none", () => {
    let taken = 0;
    const counting = { next: () => (taken++, 0.5) };
    const logits = Float32Array.from([1, 2, 3]);
    new TokenSampler(settingsWith({ topK: 2, topP: 0.9 }), 3, counting).sample(logits, noHistory);
    expect(taken).toBe(1);
    new TokenSampler(settingsWith({ temperature: 0 }), 3, counting).sample(logits, noHistory);
    expect(taken).toBe(1);
  });

  test("reaches the last candidate when the random number is at its largest", () => {
    const nearlyOne = { next: () => 1 - 2 ** -32 };
    const sampler = new TokenSampler(settingsWith(), 4, nearlyOne);
    expect(sampler.sample(Float32Array.from([0, 0, 0, Number.NEGATIVE_INFINITY]), noHistory)).toBe(2);
  });

  test("with a tiny temperature is the most likely token", () => {
    for (let seed = 0; seed < 20; seed++)
      expect(sampleOnce([1, 1.01, 0.99], settingsWith({ temperature: 1e-6, seed }))).toBe(1);
  });
});

describe("rows that are not all finite", () => {
  const { NaN: nan, POSITIVE_INFINITY: infinity } = Number;
  const kinds: ReadonlyArray<[string, Partial<SamplingSettings>]> = [
    ["greedy", { temperature: 0 }],
    ["top_k", { topK: 2 }],
    ["top_k and top_p", { topK: 3, topP: 0.9 }],
    ["typical and top_p", { typicalP: 0.9, topP: 0.9 }],
    ["plain", {}],
  ];

  test.each(kinds)("%s: NaN and -Infinity are never chosen", (_, changes) => {
    for (let seed = 0; seed < 10; seed++) {
      expect(sampleOnce([nan, -infinity, 1, nan, -infinity], settingsWith({ ...changes, seed }))).toBe(2);
    }
  });

  test.each(kinds)("%s: +Infinity is chosen", (_, changes) => {
    for (let seed = 0; seed < 10; seed++)
      expect(sampleOnce([3, infinity, 1, nan, 2], settingsWith({ ...changes, seed }))).toBe(1);
  });

  test.each(kinds)("%s: a row without a usable logit is decode_failed", (_, changes) => {
    expect(() => sampleOnce([nan, nan], settingsWith(changes))).toThrow(
      expect.objectContaining({ code: "decode_failed", message: expect.stringContaining("NaN for all 2") }),
    );
    expect(() => sampleOnce([-infinity, nan], settingsWith(changes))).toThrow(
      expect.objectContaining({ code: "decode_failed" }),
    );
  });
});

describe("a greedy choice", () => {
  test("is the largest logit, the lower id among equals", () => {
    expect(sampleOnce([1, 4, 4, 2], settingsWith({ temperature: 0 }))).toBe(1);
  });

  test("ignores every filter", () => {
    expect(sampleOnce([1, 4, 3], settingsWith({ temperature: 0, topK: 1, typicalP: 0.1, topP: 0.1 }))).toBe(1);
  });
});
