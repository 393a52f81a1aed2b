import fc from "fast-check";
import { expect, test } from "vitest";
import { median, percentile, sum } from "../src/index.ts";

test("percentile is the nearest rank", () => {
  const values = [15, 20, 35, 40, 50];
  expect([5, 30, 40, 50, 100].map((percent) => percentile(values, percent))).toEqual([15, 20, 20, 35, 50]);
  expect(percentile(values, 0)).toBe(15);
});

test("median takes the middle, or the mean of the two in the middle", () => {
  expect(median([9, 1, 5])).toBe(5);
  expect(median([9, 1, 5, 6])).toBe(5.5);
});

test("an empty list has neither", () => {
  expect(percentile([], 50)).toBeNaN();
  expect(median([])).toBeNaN();
  expect(sum([])).toBe(0);
});

test("the order of the values does not matter and the input stays as it is", () => {
  fc.assert(
    fc.property(fc.array(fc.integer(), { minLength: 1 }), fc.integer({ min: 0, max: 100 }), (values, percent) => {
      const before = [...values];
      const found = percentile(values, percent);
      expect(values).toEqual(before);
      expect(found).toBe(percentile([...values].reverse(), percent));
      const atOrBelow = values.filter((value) => value <= found).length;
      expect(atOrBelow).toBeGreaterThanOrEqual((percent / 100) * values.length);
    }),
  );
});
