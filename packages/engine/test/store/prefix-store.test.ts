import { ManualClock } from "@kvasir/kit";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { PrefixStore } from "../../src/store/prefix-store.ts";
import { openStore, pageBytes, put, restored, rowsOf, sequence } from "../support/stored-rows.ts";

function storeOf(pages: number, clock = new ManualClock()): { store: PrefixStore; clock: ManualClock } {
  return { store: openStore({ hostPages: pages, clock }), clock };
}

test("a stored prefix comes back token for token, not rounded to pages", () => {
  const { store } = storeOf(10);
  const tokens = sequence(0, 200);
  expect(put(store, tokens)).toBe(200);
  for (const length of [1, 63, 64, 65, 150, 200]) {
    const prompt = Int32Array.from([...tokens.subarray(0, length), 9999]);
    const match = store.match("", prompt);
    expect(match.tokens).toBe(length);
    expect(restored(store, match)).toEqual(rowsOf(tokens.subarray(0, length)));
  }
});

test("a head that sessions share is held once", () => {
  const { store } = storeOf(20);
  const head = [...sequence(0, 256)];
  for (let session = 0; session < 5; session++) put(store, Int32Array.from([...head, ...sequence(1000 * (session + 1), 60)]));
  expect(store.pageCount).toBe(4 + 5);
  store.checkIntegrity();
});

test("a session that grows replaces its short last page", () => {
  const { store } = storeOf(20);
  put(store, sequence(0, 70));
  expect(store.pageCount).toBe(2);
  put(store, sequence(0, 100));
  expect(store.pageCount).toBe(2);
  put(store, sequence(0, 130));
  expect(store.pageCount).toBe(3);
  expect(restored(store, store.match("", sequence(0, 130)))).toEqual(rowsOf(sequence(0, 130)));
});

test("namespaces never share", () => {
  const { store } = storeOf(20);
  put(store, sequence(0, 128), "alice");
  expect(store.match("bob", sequence(0, 128)).tokens).toBe(0);
  expect(store.match("alice", sequence(0, 128)).tokens).toBe(128);
});

test("tails go before heads, and the longest silent session first", () => {
  const { store, clock } = storeOf(4);
  put(store, sequence(0, 128));
  clock.advance(60_000);
  put(store, sequence(5000, 128));
  clock.advance(1000);
  put(store, sequence(9000, 64));
  expect(store.match("", sequence(0, 128)).tokens).toBe(64);
  expect(store.match("", sequence(5000, 128)).tokens).toBe(128);
  store.checkIntegrity();
});

test("a session that returns often outlives one that never did", () => {
  const { store, clock } = storeOf(2);
  put(store, sequence(0, 64));
  for (let i = 0; i < 5; i++) {
    clock.advance(2000);
    store.touch(store.match("", sequence(0, 64)));
  }
  put(store, sequence(5000, 64));
  clock.advance(3000);
  put(store, sequence(9000, 64));
  expect(store.match("", sequence(0, 64)).tokens).toBe(64);
  expect(store.match("", sequence(5000, 64)).tokens).toBe(0);
});

test("leased pages stay, whatever is stored", () => {
  const { store, clock } = storeOf(2);
  put(store, sequence(0, 128));
  const lease = store.lease(store.match("", sequence(0, 128)));
  clock.advance(1e6);
  expect(put(store, sequence(5000, 64))).toBe(0);
  expect(store.match("", sequence(0, 128)).tokens).toBe(128);
  lease.release();
  lease.release();
  expect(put(store, sequence(5000, 64))).toBe(64);
  store.checkIntegrity();
});

test("a session that grows in a full store takes over its own last page", () => {
  const { store } = storeOf(3);
  put(store, sequence(5000, 64));
  put(store, sequence(0, 70));
  expect(put(store, sequence(0, 100))).toBe(100);
  expect(store.match("", sequence(5000, 64)).tokens).toBe(64);
  expect(restored(store, store.match("", sequence(0, 100)))).toEqual(rowsOf(sequence(0, 100)));
  expect(store.status().counters.evictedHostPages).toBe(0);
  store.checkIntegrity();
});

test("a short page that is leased while its session grows stays readable until the release", () => {
  const { store } = storeOf(4);
  put(store, sequence(0, 70));
  const lease = store.lease(store.match("", sequence(0, 70)));
  put(store, sequence(0, 100));
  store.checkIntegrity();
  expect(restored(store, lease.match)).toEqual(rowsOf(sequence(0, 70)));
  lease.release();
  put(store, sequence(5000, 100));
  expect(store.match("", sequence(0, 100)).tokens).toBe(100);
  store.checkIntegrity();
});

test("a lane that fails to give its rows leaves no page behind", () => {
  const { store } = storeOf(4);
  put(store, sequence(0, 70));
  const failing = (from: number): void => {
    if (from >= 64) throw new Error("the device is gone");
  };
  expect(() => store.put("", sequence(0, 200), failing)).toThrow("the device is gone");
  store.checkIntegrity();
  expect(store.match("", sequence(0, 200)).tokens).toBe(64);
  expect(put(store, sequence(0, 200))).toBe(200);
});

test("pages that a lane holds too are the first to go", () => {
  const { store, clock } = storeOf(2);
  put(store, sequence(0, 64));
  clock.advance(60_000);
  put(store, sequence(5000, 64));
  const leave = store.markResident(store.match("", sequence(5000, 64)));
  put(store, sequence(9000, 64));
  expect(store.match("", sequence(0, 64)).tokens).toBe(64);
  expect(store.match("", sequence(5000, 64)).tokens).toBe(0);
  store.checkIntegrity();
  leave();
  leave();
  store.checkIntegrity();
});

test("memory returns when everything is cleared", () => {
  const { store } = storeOf(50);
  put(store, sequence(0, 2000));
  expect(store.hostBytes).toBeGreaterThan(0);
  store.clear();
  expect(store.hostBytes).toBe(0);
  expect(store.pageCount).toBe(0);
});

test("a budget below one page stores nothing", () => {
  const { store } = storeOf(0);
  expect(put(store, sequence(0, 64))).toBe(0);
  expect(store.match("", sequence(0, 64)).tokens).toBe(0);
});

test("whatever is stored, leased and evicted, a match is a true prefix with the right rows", () => {
  const step = fc.record({
    action: fc.constantFrom("put", "match", "lease", "release", "wait"),
    branch: fc.array(fc.nat(2), { minLength: 1, maxLength: 5 }),
    tail: fc.nat(90),
    namespace: fc.constantFrom("", "x"),
  });
  /** Sequences that share heads: each branch choice selects the next 40 tokens. */
  const tokensOf = (branch: number[], tail: number): Int32Array =>
    Int32Array.from([...branch.flatMap((choice) => [...sequence(choice * 100, 40)]), ...sequence(7, tail)]);
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), fc.integer({ min: 0, max: 9 }), (steps, pages) => {
      const { store, clock } = storeOf(pages);
      const leases: Array<{ release: () => void }> = [];
      for (const { action, branch, tail, namespace } of steps) {
        const tokens = tokensOf(branch, tail);
        if (action === "put") {
          const stored = put(store, tokens, namespace);
          expect(store.match(namespace, tokens).tokens).toBeGreaterThanOrEqual(stored);
        } else if (action === "match") {
          const match = store.match(namespace, tokens);
          expect(restored(store, match)).toEqual(rowsOf(tokens.subarray(0, match.tokens)));
          store.touch(match);
        } else if (action === "lease") leases.push(store.lease(store.match(namespace, tokens)));
        else if (action === "release") leases.pop()?.release();
        else clock.advance(tail * 1000);
        expect(store.hostBytes).toBeLessThanOrEqual(pages * pageBytes);
        store.checkIntegrity();
      }
      for (const lease of leases) lease.release();
      store.clear();
      expect(store.pageCount).toBe(0);
      expect(store.hostBytes).toBe(0);
    }),
    { numRuns: 300 },
  );
});
