import { ManualClock } from "@kvasir/kit";
import { expect, test } from "vitest";
import { ReturnModel } from "../../src/store/return-model.ts";
import { replayEviction, workingSetPages } from "../support/eviction-replay.ts";
import { recordedTimeline } from "../support/recorded-timeline.ts";
import { openStore, put, sequence } from "../support/stored-rows.ts";

test("the median pause is learnt for each kind of turn", () => {
  const model = new ReturnModel();
  for (let i = 0; i < 300; i++) {
    model.observe("tool-calls", i % 2 === 0 ? 2 : 8);
    model.observe("answer", i % 2 === 0 ? 60 : 240);
  }
  expect(model.medianSeconds("tool-calls")).toBeGreaterThan(2);
  expect(model.medianSeconds("tool-calls")).toBeLessThan(8);
  expect(model.medianSeconds("answer")).toBeGreaterThan(60);
  expect(model.medianSeconds("answer")).toBeLessThan(240);
  expect(model.rate("tool-calls", 1)).toBeGreaterThan(model.rate("answer", 1));
});

test("expected returns integrate to the share of sessions that go on", () => {
  const model = new ReturnModel();
  // exp(−∫ rate) is the share that has not returned: it tends to the share of last turns.
  let integral = 0;
  for (let t = 0.001; t < 1e7; t *= 1.001) integral += model.rate("unknown", t) * t * 0.001;
  expect(Math.exp(-integral)).toBeCloseTo(0.03, 2);
});

test("silence only lowers the expectation, and never to nothing", () => {
  const model = new ReturnModel();
  let before = Number.POSITIVE_INFINITY;
  for (const seconds of [0, 1, 10, 100, 1e4, 1e6]) {
    const rate = model.rate("unknown", seconds);
    expect(rate).toBeLessThan(before);
    expect(rate).toBeGreaterThan(0);
    before = rate;
  }
});

test("deep tokens, dearer to compute, outlive shallow ones that were used at the same time", () => {
  const store = openStore({ hostPages: 41 });
  put(store, sequence(0, 64 * 40));
  put(store, sequence(9000, 64));
  put(store, sequence(7000, 64));
  expect(store.match("", sequence(0, 64 * 40)).tokens).toBe(64 * 40);
  expect(store.match("", sequence(9000, 64)).tokens + store.match("", sequence(7000, 64)).tokens).toBe(64);
});

test("what a session left behind goes before older pages of sessions that may go on", () => {
  const clock = new ManualClock();
  const store = openStore({ hostPages: 6, clock });
  put(store, sequence(5000, 128), "", { session: "b" });
  clock.advance(20_000);
  put(store, Int32Array.from([...sequence(0, 64), ...sequence(1000, 128)]), "", { session: "a" });
  clock.advance(1000);
  // The session goes on from token 64: its former turns were rewritten.
  const rewritten = Int32Array.from([...sequence(0, 64), ...sequence(2000, 128)]);
  put(store, rewritten, "", { session: "a" });
  expect(store.match("", sequence(5000, 128)).tokens).toBe(128);
  expect(store.match("", rewritten).tokens).toBe(192);
  store.checkIntegrity();
});

test("another session that runs through the same pages keeps them from being left behind", () => {
  const clock = new ManualClock();
  const store = openStore({ hostPages: 7, clock });
  const shared = Int32Array.from([...sequence(0, 64), ...sequence(1000, 64)]);
  put(store, shared, "", { session: "a" });
  clock.advance(1000);
  put(store, Int32Array.from([...shared, ...sequence(3000, 64)]), "", { session: "b" });
  put(store, Int32Array.from([...sequence(0, 64), ...sequence(2000, 64)]), "", { session: "a" });
  for (const page of store.match("", shared).pages) expect(page.isLeftBehind).toBe(false);
  // Also when the other session's prompt ends where the former one ended.
  const other = openStore({ hostPages: 7, clock });
  put(other, shared, "", { session: "a" });
  clock.advance(1000);
  put(other, shared, "", { session: "b" });
  clock.advance(1000);
  put(other, Int32Array.from([...sequence(0, 64), ...sequence(2000, 64)]), "", { session: "a" });
  for (const page of other.match("", shared).pages) expect(page.isLeftBehind).toBe(false);
});

test("a lane that is stored long after its turn is as old as the turn", () => {
  const clock = new ManualClock();
  const store = openStore({ hostPages: 4, clock });
  const endedMs = clock.monotonicMs();
  clock.advance(600_000);
  put(store, sequence(5000, 128));
  clock.advance(1000);
  put(store, sequence(0, 128), "", { endedMs });
  put(store, sequence(9000, 64));
  expect(store.match("", sequence(5000, 128)).tokens).toBe(128);
  expect(store.match("", sequence(0, 128)).tokens).toBe(64);
  // What another turn used since keeps its time.
  put(store, sequence(5000, 160), "", { endedMs });
  put(store, sequence(8000, 64));
  expect(store.match("", sequence(5000, 160)).tokens).toBe(128);
});

test("the end of a prompt whose last tokens changed goes before anything else", () => {
  const clock = new ManualClock();
  const store = openStore({ hostPages: 4, clock });
  put(store, sequence(5000, 64));
  clock.advance(20_000);
  put(store, sequence(0, 110));
  const next = Int32Array.from([...sequence(0, 100), ...sequence(700, 28)]);
  put(store, next);
  put(store, sequence(8000, 64));
  expect(store.match("", sequence(5000, 64)).tokens).toBe(64);
  expect(store.match("", next).tokens).toBe(128);
  expect(store.match("", sequence(8000, 64)).tokens).toBe(64);
});

test("on recorded agent sessions the value recomputes less than LRU", () => {
  const events = recordedTimeline({ users: 10, scale: 64, seed: 2 });
  const budget = Math.floor(workingSetPages(events) / 2);
  const [lru, value, hinted] = (["lru", "value", "value-hints"] as const).map((policy) =>
    replayEviction(events, budget, policy),
  );
  expect(value?.computedCost).toBeLessThan(0.98 * (lru?.computedCost ?? 0));
  expect(hinted?.computedCost).toBeLessThan(0.98 * (lru?.computedCost ?? 0));
  expect(value?.unavoidableTokens).toBe(lru?.unavoidableTokens);
});
