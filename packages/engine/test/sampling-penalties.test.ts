import { SeededRandom } from "@kvasir/kit";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type SamplingSettings, TokenHistory } from "../src/index.ts";
import { LogitAdjustments } from "../src/sampling/logit-adjustments.ts";
import { TokenSampler } from "../src/sampling/token-sampler.ts";
import { settingsWith } from "./sampling-settings.ts";

const VOCABULARY = 8;

function historyOf(prompt: readonly number[], output: readonly number[]): TokenHistory {
  const history = new TokenHistory(Int32Array.from(prompt));
  for (const token of output) history.append(token);
  return history;
}

/** The adjusted row by counting the whole history anew. */
function reference(
  row: readonly number[],
  settings: SamplingSettings,
  prompt: readonly number[],
  output: readonly number[],
): number[] {
  const all = [...prompt, ...output];
  const recent = settings.repeatLastN < 0 ? all : all.slice(Math.max(all.length - settings.repeatLastN, 0));
  return row.map((logit, token) => {
    let adjusted = logit;
    for (const [biased, bias] of settings.logitBias) if (biased === token) adjusted = Math.fround(adjusted + bias);
    if (recent.includes(token))
      adjusted = Math.fround(adjusted > 0 ? adjusted / settings.repeatPenalty : adjusted * settings.repeatPenalty);
    const count = output.filter((seen) => seen === token).length;
    return count > 0 ? Math.fround(adjusted - count * settings.frequencyPenalty - settings.presencePenalty) : adjusted;
  });
}

describe("bias and penalties", () => {
  test("follow the history as if it were counted anew at every token", () => {
    const token = fc.integer({ min: 0, max: VOCABULARY - 1 });
    const quarter = (min: number, max: number) => fc.integer({ min: min * 4, max: max * 4 }).map((value) => value / 4);
    fc.assert(
      fc.property(
        fc.array(token, { maxLength: 12 }),
        fc.array(token, { minLength: 1, maxLength: 20 }),
        fc.record({
          repeatPenalty: quarter(1, 2),
          repeatLastN: fc.integer({ min: -1, max: 10 }),
          frequencyPenalty: quarter(-2, 2),
          presencePenalty: quarter(-2, 2),
          logitBias: fc.array(fc.tuple(token, quarter(-100, 100)), { maxLength: 3 }),
        }),
        (prompt, output, changes) => {
          const settings = settingsWith(changes);
          const adjustments = new LogitAdjustments(settings);
          const history = historyOf(prompt, []);
          const row = [3, -2, 0.5, 0, -7, 1, 2, -0.25];
          for (let step = 0; step <= output.length; step++) {
            const adjusted = Float32Array.from(row);
            adjustments.apply(adjusted, history);
            const expected = reference(row, settings, prompt, output.slice(0, step));
            for (const [index, value] of expected.entries()) expect(adjusted[index]).toBeCloseTo(value, 4);
            const next = output[step];
            if (next !== undefined) history.append(next);
          }
        },
      ),
    );
  });

  test("the repeat penalty reads the prompt, frequency and presence do not", () => {
    const history = historyOf([1], []);
    const penalized = new TokenSampler(settingsWith({ temperature: 0, repeatPenalty: 4 }), 3, new SeededRandom(0));
    expect(penalized.sample(Float32Array.from([1, 3, 2]), history)).toBe(2);
    const counted = new TokenSampler(
      settingsWith({ temperature: 0, frequencyPenalty: 2, presencePenalty: 2 }),
      3,
      new SeededRandom(0),
    );
    expect(counted.sample(Float32Array.from([1, 3, 2]), history)).toBe(1);
  });

  test("logit_bias of -Infinity rules a token out", () => {
    const sampler = new TokenSampler(
      settingsWith({ temperature: 0, logitBias: [[1, Number.NEGATIVE_INFINITY]] }),
      3,
      new SeededRandom(0),
    );
    expect(sampler.sample(Float32Array.from([1, 3, 2]), historyOf([], []))).toBe(2);
  });

  test("bias for a token outside the vocabulary changes nothing", () => {
    const sampler = new TokenSampler(
      settingsWith({
        temperature: 0,
        logitBias: [
          [-1, 9],
          [99, 9],
        ],
      }),
      3,
      new SeededRandom(0),
    );
    expect(sampler.sample(Float32Array.from([1, 3, 2]), historyOf([], []))).toBe(1);
  });

  test("the backend's row stays as it was", () => {
    const row = Float32Array.from([1, 3, 2]);
    const settings = settingsWith({ repeatPenalty: 2, frequencyPenalty: 1, logitBias: [[0, 5]] });
    new TokenSampler(settings, 3, new SeededRandom(0)).sample(row, historyOf([1], [2]));
    expect([...row]).toEqual([1, 3, 2]);
  });
});
