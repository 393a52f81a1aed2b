import { SeededRandom } from "@kvasir/kit";
import { describe, expect, test } from "vitest";
import { readRecordedSessions } from "../src/replay/recorded-session.ts";
import { measureWorkload } from "../src/replay/replay-bench.ts";
import { defaultWorkload, planWorkload } from "../src/replay/workload.ts";
import { randomPrompt } from "../src/random-prompt.ts";

const recorded = readRecordedSessions();

function sharedPrefix(x: readonly number[], y: readonly number[]): number {
  const end = x.findIndex((token, position) => token !== y[position]);
  return end === -1 ? x.length : end;
}

describe("recorded sessions", () => {
  test("are-a-few-dozen-with-sane-sizes", () => {
    expect(recorded.length).toBe(36);
    for (const { requests, headTokens } of recorded) {
      expect(headTokens).toBeGreaterThan(0);
      expect(requests[0]?.sharedTokens).toBe(0);
      for (const request of requests) expect(request.sharedTokens).toBeLessThanOrEqual(request.promptTokens);
    }
  });
});

describe("planned workload", () => {
  test("is-the-same-for-the-same-seed-and-another-for-another", () => {
    expect(planWorkload(recorded, defaultWorkload)).toEqual(planWorkload(recorded, defaultWorkload));
    const other = planWorkload(recorded, { ...defaultWorkload, seed: 2 });
    expect(other[0]?.requests[0]?.promptTokens).not.toEqual(
      planWorkload(recorded, defaultWorkload)[0]?.requests[0]?.promptTokens,
    );
    expect(measureWorkload(other).promptTokens).toBe(measureWorkload(planWorkload(recorded, defaultWorkload)).promptTokens);
  });

  test("has-the-sizes-of-the-default-replay", () => {
    const { promptTokens, unavoidable } = measureWorkload(planWorkload(recorded, defaultWorkload));
    expect({ promptTokens, unavoidable }).toEqual({ promptTokens: 280_302, unavoidable: 26_751 });
  });

  test("repeats-the-recorded-share-of-the-turn-before", () => {
    const { scale, turns } = defaultWorkload;
    for (const [index, session] of planWorkload(recorded, { ...defaultWorkload, sessions: 24 }).entries()) {
      const source = recorded.find(({ id }) => id === session.id);
      for (const { turn, promptTokens } of session.requests.slice(1, turns)) {
        const previous = session.requests[turn - 1]?.promptTokens ?? [];
        const wanted = Math.min(
          Math.round((source?.requests[turn]?.sharedTokens ?? 0) / scale),
          previous.length,
          promptTokens.length - 1,
        );
        const shared = sharedPrefix(promptTokens, previous);
        // a new random token may by chance continue the old prompt
        expect(shared - wanted, `session ${index} turn ${turn}`).toBeOneOf([0, 1]);
      }
    }
  });

  test("gives-all-sessions-the-same-head-and-nothing-else-in-common", () => {
    const plans = planWorkload(recorded, defaultWorkload);
    const first = plans.map((plan) => plan.requests[0]?.promptTokens ?? []);
    for (const [index, prompt] of first.entries()) {
      for (const other of first.slice(index + 1)) {
        const heads = [prompt, other].map((tokens) => {
          const plan = plans.find(({ requests }) => requests[0]?.promptTokens === tokens);
          return Math.round((recorded.find(({ id }) => id === plan?.id)?.headTokens ?? 0) / defaultWorkload.scale);
        });
        expect(sharedPrefix(prompt, other) - Math.min(...heads)).toBeOneOf([0, 1]);
      }
    }
  });

  test("says-how-many-sessions-there-are-when-too-many-are-asked-for", () => {
    expect(() => planWorkload(recorded, { ...defaultWorkload, sessions: 1000 })).toThrow(/1000 sessions .* 36 are there/);
  });

  test("keeps-within-a-small-vocabulary", () => {
    const tokens = randomPrompt(new SeededRandom(3), 5000, { first: 10, count: 200 });
    expect(Math.min(...tokens)).toBeGreaterThanOrEqual(10);
    expect(Math.max(...tokens)).toBeLessThan(210);
  });
});
