import { SeededRandom } from "@kvasir/kit";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { TokenHistory, TokenSampler } from "../src/index.ts";
import { logprobsOf } from "../src/sampling/logprobs.ts";
import { settingsWith } from "./sampling-settings.ts";

describe("logprobs", () => {
  test("are the log-softmax of the row, alternatives in descending order", () => {
    fc.assert(
      fc.property(
        fc.array(fc.float({ min: -60, max: 60, noNaN: true }), { minLength: 1, maxLength: 80 }),
        fc.nat(20),
        (logits, topCount) => {
          const row = Float32Array.from(logits);
          const largest = Math.max(...row);
          const logTotal = Math.log(row.reduce((sum, logit) => sum + Math.exp(logit - largest), 0));
          const expected = Array.from(row, (logit, token) => ({ token, logit, logprob: logit - largest - logTotal }));
          for (const { token, logprob } of expected) expect(logprobsOf(row, token, 0).logprob).toBeCloseTo(logprob, 6);
          const { top } = logprobsOf(row, 0, topCount);
          const wanted = expected
            .toSorted((left, right) => right.logit - left.logit || left.token - right.token)
            .slice(0, topCount);
          expect(top.map(({ token }) => token)).toEqual(wanted.map(({ token }) => token));
          for (const [index, { logprob }] of top.entries())
            expect(logprob).toBeCloseTo(wanted[index]?.logprob ?? Number.NaN, 6);
        },
      ),
    );
  });

  test("do not know penalties, bias or temperature", () => {
    const row = Float32Array.from([1, 2, 3]);
    const history = new TokenHistory(Int32Array.of(2));
    const sampler = new TokenSampler(
      settingsWith({ temperature: 3, repeatPenalty: 9, logitBias: [[0, 50]] }),
      3,
      new SeededRandom(1),
    );
    sampler.sample(row, history);
    expect(sampler.logprobs(row, 2, 1)).toEqual(logprobsOf(row, 2, 1));
    expect(sampler.logprobs(row, 2, 1).top[0]?.token).toBe(2);
  });

  test("NaN and -Infinity count as impossible", () => {
    const row = Float32Array.from([Number.NaN, 0, Number.NEGATIVE_INFINITY, 0]);
    expect(logprobsOf(row, 1, 5).logprob).toBeCloseTo(Math.log(0.5), 8);
    expect(logprobsOf(row, 1, 5).top.map(({ token }) => token)).toEqual([1, 3]);
    expect(logprobsOf(row, 0, 0).logprob).toBe(Number.NEGATIVE_INFINITY);
    expect(logprobsOf(row, 2, 0).logprob).toBe(Number.NEGATIVE_INFINITY);
    expect(() => logprobsOf(Float32Array.of(Number.NaN), 0, 1)).toThrow(expect.objectContaining({ code: "decode_failed" }));
  });

  test("a +Infinity logit takes all the probability", () => {
    const row = Float32Array.from([5, Number.POSITIVE_INFINITY, 1]);
    expect(logprobsOf(row, 1, 3)).toEqual({
      logprob: 0,
      top: [
        { token: 1, logprob: 0 },
        { token: 0, logprob: Number.NEGATIVE_INFINITY },
        { token: 2, logprob: Number.NEGATIVE_INFINITY },
      ],
    });
  });
});
