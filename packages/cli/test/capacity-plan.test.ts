import { CodedError, GIB, MIB } from "@kvasir/kit";
import { type GgufFacts, readGgufFacts } from "@kvasir/models";
import fc from "fast-check";
import { beforeAll, expect, test } from "vitest";
import { tinyModelPath } from "../../../fixtures/tiny-models.ts";
import { type CapacityOptions, planCapacity } from "../src/serve/capacity-plan.ts";

const base: CapacityOptions = {
  maxContextTokens: null,
  maxConcurrency: 4,
  lanes: null,
  kvCapacityTokens: null,
  kvDtype: "f16",
};
let facts: GgufFacts;
beforeAll(async () => {
  facts = await readGgufFacts(tinyModelPath("tiny-qwen3"));
});

/** The fixture with another training context. */
const trainedFor = (trainingContextTokens: number): GgufFacts => ({ ...facts, trainingContextTokens });

function refusalOf(run: () => unknown): CodedError {
  try {
    run();
  } catch (error) {
    if (error instanceof CodedError) return error;
    throw error;
  }
  return expect.fail("the plan was accepted");
}

test("with room, the window is what the model was trained for, in one lane a request", () => {
  const plan = planCapacity(base, facts, 64 * GIB);
  expect(plan).toMatchObject({ laneCount: 4, laneTokens: facts.trainingContextTokens, windowLimit: "model" });
  expect(plan.kvBytes).toBe(4 * Math.ceil(plan.laneTokens / 256) * 256 * plan.kvBytesPerToken);
});

test("without room an automatic window shrinks until it fits, in steps of 256", () => {
  const large = trainedFor(1_000_000);
  const availableBytes = facts.tensorBytes + 300 * MIB;
  const plan = planCapacity(base, large, availableBytes);
  expect(plan.windowLimit).toBe("memory");
  expect(plan.laneTokens % 256).toBe(0);
  expect(plan.kvBytes).toBeLessThanOrEqual(availableBytes - facts.tensorBytes);
});

test("a window that was asked for is refused when it does not fit, with both sizes and the largest that does", () => {
  const availableBytes = facts.tensorBytes + 300 * MIB;
  const asked = { ...base, maxContextTokens: 1_000_000 };
  const error = refusalOf(() => planCapacity(asked, trainedFor(1_000_000), availableBytes));
  expect(error.code).toBe("kv_memory_insufficient");
  const fitting = Number(/--max-context-tokens (\d+)/.exec(error.message)?.[1]);
  const plan = planCapacity({ ...asked, maxContextTokens: fitting }, trainedFor(1_000_000), availableBytes);
  expect(plan.laneTokens).toBe(fitting);
  expect(() => planCapacity({ ...asked, maxContextTokens: fitting + 1 }, trainedFor(1_000_000), availableBytes)).toThrow(
    CodedError,
  );
  expect(error.message).toContain("(46,137,344 bytes)");
});

test("when not even the smallest context fits, the way out is another model", () => {
  const error = refusalOf(() => planCapacity(base, facts, facts.tensorBytes));
  expect(error.code).toBe("kv_memory_insufficient");
  expect(error.message).toContain("use a smaller model");
});

test("a device that checks for itself is not limited by host memory", () => {
  expect(planCapacity(base, trainedFor(131_072), null)).toMatchObject({ laneTokens: 131_072, laneCount: 4 });
});

test("a KV capacity is divided into lanes", () => {
  expect(planCapacity({ ...base, kvCapacityTokens: 4096 }, trainedFor(100_000), 64 * GIB)).toMatchObject({
    laneCount: 4,
    laneTokens: 1024,
  });
  const plan = planCapacity({ ...base, kvCapacityTokens: 10_000, maxContextTokens: 1000 }, trainedFor(100_000), 64 * GIB);
  expect(plan).toMatchObject({ laneCount: 10, laneTokens: 1000 });
});

test.each([
  [{ lanes: 2 }, "--lanes is 2; each of the 4 concurrent requests needs a lane"],
  [{ lanes: 8, kvCapacityTokens: 100 }, "give one of them"],
  [{ kvCapacityTokens: 1000, maxContextTokens: 512 }, "4 concurrent requests of 512 tokens need 2,048"],
])("%j contradicts itself and is refused", (change, message) => {
  const error = refusalOf(() => planCapacity({ ...base, ...change }, facts, 64 * GIB));
  expect([error.code, error.message]).toEqual(["invalid_configuration", expect.stringContaining(message)]);
});

test("whatever is planned fits, and every running request has a lane", () => {
  const nullable = <Value>(values: fc.Arbitrary<Value>) => fc.option(values, { nil: null });
  const given = fc.record({
    maxContextTokens: nullable(fc.integer({ min: 16, max: 200_000 })),
    maxConcurrency: fc.integer({ min: 1, max: 256 }),
    lanes: nullable(fc.integer({ min: 1, max: 256 })),
    kvCapacityTokens: nullable(fc.integer({ min: 16, max: 2_000_000 })),
    kvDtype: fc.constantFrom("f16" as const, "q8_0" as const),
  });
  const run = (options: CapacityOptions, availableBytes: number, training: number): void => {
    try {
      const plan = planCapacity(options, trainedFor(training), availableBytes);
      expect(plan.laneCount).toBeGreaterThanOrEqual(options.maxConcurrency);
      expect(plan.laneTokens).toBeGreaterThan(0);
      expect(plan.kvBytes + facts.tensorBytes).toBeLessThanOrEqual(availableBytes);
      if (options.maxContextTokens !== null) expect(plan.laneTokens).toBe(options.maxContextTokens);
      else expect(plan.laneTokens).toBeLessThanOrEqual(training);
    } catch (error) {
      if (!(error instanceof CodedError)) throw error;
    }
  };
  fc.assert(fc.property(given, fc.integer({ min: 0, max: 8 * GIB }), fc.integer({ min: 1, max: 262_144 }), run));
});
