import fc from "fast-check";
import { expect, test } from "vitest";
import { sharePrefill } from "../src/step-plan.ts";

const share = (remaining: number[], budget: number): number[] =>
  sharePrefill(
    remaining.map((remainingTokens) => ({ remainingTokens })),
    budget,
  );

test("a lone prompt takes the whole budget", () => {
  expect(share([8000], 512)).toEqual([512]);
});

test("a short suffix passes half of a long prompt's chunk", () => {
  expect(share([8000, 50], 512)).toEqual([462, 50]);
  expect(share([8000, 400], 512)).toEqual([256, 256]);
});

test("equally long prompts run one after the other", () => {
  expect(share([8000, 8000], 512)).toEqual([512, 0]);
});

test("what the head leaves goes to the next", () => {
  expect(share([100, 8000], 512)).toEqual([100, 412]);
});

test("shares never exceed the demand or the budget, waste nothing, and leave the head at least half", () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 1, max: 20_000 }), { minLength: 1, maxLength: 8 }),
      fc.integer({ min: 1, max: 4096 }),
      (remaining, budget) => {
        const shares = share(remaining, budget);
        const total = shares.reduce((x, y) => x + y, 0);
        expect(total).toBe(
          Math.min(
            budget,
            remaining.reduce((x, y) => x + y, 0),
          ),
        );
        shares.forEach((tokens, index) => {
          expect(tokens).toBeGreaterThanOrEqual(0);
          expect(tokens).toBeLessThanOrEqual(remaining[index] ?? 0);
        });
        expect(shares[0]).toBeGreaterThanOrEqual(Math.min(remaining[0] ?? 0, Math.ceil(budget / 2)));
      },
    ),
  );
});

test("every prompt is finished while new short ones keep coming", () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 1, max: 300 }), { minLength: 200, maxLength: 200 }), (newcomers) => {
      const waiting = [{ remainingTokens: 5000 }];
      let steps = 0;
      for (const remainingTokens of newcomers) {
        if (waiting[0]?.remainingTokens === 0) break;
        waiting.push({ remainingTokens });
        const live = waiting.filter((demand) => demand.remainingTokens > 0);
        sharePrefill(live, 128).forEach((tokens, index) => {
          const demand = live[index];
          if (demand) demand.remainingTokens -= tokens;
        });
        steps++;
      }
      expect(waiting[0]?.remainingTokens).toBe(0);
      expect(steps).toBeLessThanOrEqual(Math.ceil(5000 / 64));
    }),
  );
});
