import { Batch, type BackendFacts } from "@kvasir/engine";
import fc from "fast-check";
import { expect, test } from "vitest";
import { BatchOrder } from "../src/batch-order.ts";

const facts: BackendFacts = {
  description: "",
  vocabSize: 100,
  laneCount: 6,
  laneTokens: 50,
  batchTokens: 40,
  outputRows: 40,
  kvBytesPerToken: 0,
  pageRefusal: null,
  canRollBack: true,
  kvBytes: 0,
  threads: 1,
  endTokens: [],
};

const lanesInAnyOrder = fc
  .shuffledSubarray([0, 1, 2, 3, 4, 5], { minLength: 1 })
  .chain((lanes) =>
    fc.tuple(
      fc.constant(lanes),
      fc.array(fc.integer({ min: 1, max: 6 }), { minLength: lanes.length, maxLength: lanes.length }),
    ),
  );

test("rows go by rising lanes, each lane's in order, and every row finds its place", () => {
  const order = new BatchOrder(facts);
  fc.assert(
    fc.property(lanesInAnyOrder, ([lanes, counts]) => {
      const batch = new Batch(40);
      for (const [index, lane] of lanes.entries()) {
        for (let row = 0; row < (counts[index] ?? 0); row++) batch.push(lane, 10 + row, lane, true);
      }
      expect(order.arrange(batch, { storedTokens: () => 10 })).toBe("fits");
      const rows = [...Array(batch.rows).keys()];
      const places = order.places === null ? rows : [...order.places.subarray(0, batch.rows)];
      expect([...places].sort((one, other) => one - other)).toEqual(rows);
      for (const [place, row] of places.entries()) {
        expect(order.placeOf(row)).toBe(place);
        const next = places[place + 1];
        if (next === undefined) continue;
        const [lane, nextLane] = [batch.lanes[row] ?? 0, batch.lanes[next] ?? 0];
        expect(lane < nextLane || (lane === nextLane && next === row + 1)).toBe(true);
      }
      expect(order.lanes).toEqual([...lanes].sort((one, other) => one - other));
      expect(order.places === null).toBe(lanes.every((lane, index) => index === 0 || lane > (lanes[index - 1] ?? 0)));
    }),
  );
});

test("rows of a lane that are not together are refused with the row", () => {
  const batch = new Batch(4);
  batch.push(0, 0, 1, false);
  batch.push(1, 0, 1, false);
  batch.push(0, 1, 1, false);
  const order = new BatchOrder(facts);
  expect(() => order.arrange(batch, { storedTokens: () => 0 })).toThrow(/row 2 comes back to lane 0/);
});
