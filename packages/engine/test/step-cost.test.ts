import { expect, test } from "vitest";
import { StepCost } from "../src/step-cost.ts";

const trueCost = (depth: number): number => 1 + depth / 1000;

function trained(): StepCost {
  const cost = new StepCost();
  for (let i = 0; i < 20; i++) cost.record({ decodeRows: 2, prefillTokens: 0, prefillDepth: 0, milliseconds: 20 });
  for (let depth = 64; depth < 4000; depth += 128) {
    cost.record({ decodeRows: 2, prefillTokens: 128, prefillDepth: depth, milliseconds: 20 + 128 * trueCost(depth) });
  }
  return cost;
}

test("the budget keeps a mixed step under the target at every depth", () => {
  const cost = trained();
  for (const depth of [0, 1000, 4000]) {
    const tokens = cost.prefillBudget({ decodeRows: 2, depth, targetMs: 250, leastTokens: 16, mostTokens: 512 });
    expect(20 + tokens * trueCost(depth)).toBeLessThanOrEqual(250);
    expect(20 + (tokens + 8) * trueCost(depth)).toBeGreaterThan(200);
  }
});

test("nothing limits prefill while no stream runs", () => {
  expect(trained().prefillBudget({ decodeRows: 0, depth: 9000, targetMs: 1, leastTokens: 16, mostTokens: 512 })).toBe(512);
});

test("prefill always advances, also when decoding alone exceeds the target", () => {
  expect(trained().prefillBudget({ decodeRows: 2, depth: 0, targetMs: 5, leastTokens: 16, mostTokens: 512 })).toBe(16);
});

test("an unmeasured engine starts with the smallest chunk", () => {
  expect(new StepCost().prefillBudget({ decodeRows: 1, depth: 0, targetMs: 250, leastTokens: 16, mostTokens: 512 })).toBe(16);
});

test("an unmeasured batch size lies between the measured ones, and grows beyond the largest", () => {
  const cost = new StepCost();
  cost.record({ decodeRows: 2, prefillTokens: 0, prefillDepth: 0, milliseconds: 20 });
  expect(cost.decodeMs(1)).toBe(20);
  expect(cost.decodeMs(6)).toBe(20);
  cost.record({ decodeRows: 6, prefillTokens: 0, prefillDepth: 0, milliseconds: 40 });
  expect(cost.decodeMs(3)).toBe(25);
  cost.record({ decodeRows: 0, prefillTokens: 100, prefillDepth: 50, milliseconds: 300 });
  expect(cost.decodeMs(8)).toBeCloseTo(46);
});

test("the estimate follows a machine that becomes slower", () => {
  const cost = trained();
  for (let i = 0; i < 60; i++) cost.record({ decodeRows: 0, prefillTokens: 128, prefillDepth: 500, milliseconds: 128 * 10 });
  expect(cost.prefillMsPerToken(128, 500)).toBeGreaterThan(8);
});

/** Attention beside deep contexts as CPU kernels compute it: dear in chunks of fewer than 64 rows. */
const tiledCost = (tokens: number, depth: number): number => (tokens > 64 ? 2 + depth / 1100 : 2.5 + depth / 480);

test("small chunks that had to be small do not make larger ones look dear", () => {
  const cost = new StepCost();
  cost.record({ decodeRows: 1, prefillTokens: 0, prefillDepth: 0, milliseconds: 10 });
  const budget = (depth: number): number =>
    cost.prefillBudget({ decodeRows: 1, depth, targetMs: 250, leastTokens: 8, mostTokens: 512 });
  const longest: number[] = [];
  const prefill = (length: number): number[] => {
    const chunks: number[] = [];
    for (let depth = 0; depth < length; depth += chunks.at(-1) ?? 0) {
      const tokens = budget(depth);
      chunks.push(tokens);
      const milliseconds = 10 + tokens * tiledCost(tokens, depth + tokens / 2);
      cost.record({ decodeRows: 1, prefillTokens: tokens, prefillDepth: depth + tokens / 2, milliseconds });
      longest.push(milliseconds);
    }
    return chunks;
  };
  prefill(8000);
  expect(Math.max(...longest.splice(0))).toBeLessThan(300);
  // The next prompt starts with large chunks again, until even the smallest large one is too long.
  const chunks = prefill(8000);
  expect(Math.max(...chunks)).toBeGreaterThan(64);
  expect(chunks.findIndex((tokens) => tokens <= 64)).toBeGreaterThan(8);
  expect(Math.max(...longest)).toBeLessThanOrEqual(250);
});
