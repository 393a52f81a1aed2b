import fc from "fast-check";
import { expect, test } from "vitest";
import { SeededRandom } from "../src/index.ts";

const draw = (seed: number, count: number): number[] => {
  const random = new SeededRandom(seed);
  return Array.from({ length: count }, () => random.next());
};

test("the same seed gives the same sequence, another seed another", () => {
  fc.assert(
    fc.property(fc.maxSafeInteger(), fc.maxSafeInteger(), (seed, other) => {
      expect(draw(seed, 8)).toEqual(draw(seed, 8));
      if (seed !== other && !(Object.is(seed, -0) || Object.is(other, -0))) expect(draw(seed, 8)).not.toEqual(draw(other, 8));
    }),
  );
});

test("a seed differs from its negative", () => {
  expect(draw(7, 4)).not.toEqual(draw(-7, 4));
});

test("draws lie in [0, 1) and are spread evenly", () => {
  const values = draw(42, 100_000);
  expect(values.every((value) => value >= 0 && value < 1)).toBe(true);
  const buckets = Array.from({ length: 10 }, (_, bucket) => values.filter((value) => Math.floor(value * 10) === bucket).length);
  // 10,000 expected, standard deviation 95: five of them
  for (const count of buckets) expect(Math.abs(count - 10_000)).toBeLessThan(475);
});

test("below stays below its bound", () => {
  fc.assert(
    fc.property(fc.integer(), fc.integer({ min: 1, max: 1000 }), (seed, bound) => {
      const value = new SeededRandom(seed).below(bound);
      expect(Number.isInteger(value) && value >= 0 && value < bound).toBe(true);
    }),
  );
});
