import { readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { ManualClock } from "@kvasir/kit";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Lease, PrefixStore } from "../../src/store/prefix-store.ts";
import { makeCacheFolder, pageFiles } from "../support/cache-folders.ts";
import { diskOf, fileBytes, openStore, pageBytes, put, restored, rowsOf, sequence } from "../support/stored-rows.ts";

const operation = fc.record({
  kind: fc.constantFrom(
    ...(["put", "put", "put", "load", "load", "lease", "release", "resident", "leave", "spill", "spillAll", "wait"] as const),
    ...(["settle", "clear-host", "clear-disk", "restart", "flip", "cut", "delete"] as const),
  ),
  branch: fc.array(fc.nat(2), { minLength: 1, maxLength: 6 }),
  tail: fc.nat(90),
  namespace: fc.constantFrom("", "x"),
  session: fc.constantFrom(undefined, "one", "two"),
});

/** Sequences that share heads: each branch choice selects the next 40 tokens. */
function tokensOf(branch: readonly number[], tail: number): Int32Array {
  return Int32Array.from([...branch.flatMap((choice) => [...sequence(choice * 100, 40)]), ...sequence(7, tail)]);
}

/** Everything that was ever stored, by namespace: what a match may at most know. */
class Reference {
  readonly #stored = new Map<string, Int32Array[]>();

  add(namespace: string, tokens: Int32Array): void {
    this.#stored.set(namespace, [...(this.#stored.get(namespace) ?? []), tokens]);
  }

  longestPrefix(namespace: string, tokens: Int32Array): number {
    const lengths = (this.#stored.get(namespace) ?? []).map((stored) => {
      const end = stored.findIndex((token, index) => token !== tokens[index]);
      return end === -1 ? stored.length : end;
    });
    return Math.min(tokens.length, Math.max(0, ...lengths));
  }
}

function damage(kind: "flip" | "cut" | "delete", folder: string, choice: number): void {
  const paths = pageFiles(folder);
  const path = paths[choice % Math.max(1, paths.length)];
  if (path === undefined) return;
  if (kind === "delete") rmSync(path);
  else if (kind === "cut") truncateSync(path, choice);
  else {
    const bytes = readFileSync(path);
    const at = (choice * 37) % bytes.length;
    if (bytes.length > 0) bytes.writeUInt8(bytes.readUInt8(at) ^ 16, at);
    writeFileSync(path, bytes);
  }
}

async function runOperations(
  operations: ReadonlyArray<typeof operation extends fc.Arbitrary<infer T> ? T : never>,
  hostPages: number,
  diskPages: number,
): Promise<void> {
  const folder = makeCacheFolder();
  const clock = new ManualClock();
  const open = (): PrefixStore => openStore({ hostPages, clock, disk: diskOf(folder, diskPages) });
  let store = open();
  const reference = new Reference();
  let leases: Lease[] = [];
  let residents: Array<() => void> = [];
  let pending: Array<Promise<unknown>> = [];
  const settle = async (): Promise<void> => {
    await Promise.all(pending);
    pending = [];
  };
  const load = async (namespace: string, tokens: Int32Array): Promise<void> => {
    const lease = store.lease(store.match(namespace, tokens));
    expect(lease.match.tokens).toBeLessThanOrEqual(reference.longestPrefix(namespace, tokens));
    const loaded = await store.load(lease.match);
    expect(loaded.tokens).toBeLessThanOrEqual(lease.match.tokens);
    expect(loaded.hostTokens + loaded.diskTokens).toBe(loaded.tokens);
    expect(restored(store, loaded)).toEqual(rowsOf(tokens.subarray(0, loaded.tokens)));
    store.touch(loaded);
    lease.release();
  };
  for (const { kind, branch, tail, namespace, session } of operations) {
    const tokens = tokensOf(branch, tail);
    switch (kind) {
      case "put": {
        const stored = put(store, tokens, namespace, session === undefined ? {} : { session, end: "tool-calls" });
        reference.add(namespace, tokens);
        expect(store.match(namespace, tokens).tokens).toBeGreaterThanOrEqual(stored);
        break;
      }
      case "load":
        pending.push(load(namespace, tokens));
        break;
      case "lease":
        leases.push(store.lease(store.match(namespace, tokens)));
        break;
      case "release":
        leases.shift()?.release();
        break;
      case "resident":
        residents.push(store.markResident(store.match(namespace, tokens)));
        break;
      case "leave":
        residents.shift()?.();
        break;
      case "spill":
        pending.push(store.spill());
        break;
      case "spillAll":
        await store.spillAll(Number.POSITIVE_INFINITY);
        break;
      case "wait":
        clock.advance(tail * 1000);
        break;
      case "settle":
        await settle();
        break;
      case "clear-host":
        store.clear("host");
        break;
      case "clear-disk":
        store.clear("disk");
        break;
      case "restart":
        await store.close();
        await settle();
        store.checkIntegrity();
        store = open();
        leases = [];
        residents = [];
        break;
      default:
        damage(kind, folder, tail);
    }
    store.checkIntegrity();
    const { hostBytes, diskBytes } = store.status().tiers;
    expect(hostBytes).toBeLessThanOrEqual(hostPages * pageBytes);
    expect(diskBytes).toBeLessThanOrEqual(diskPages * fileBytes);
  }
  await settle();
  for (const lease of leases) lease.release();
  for (const leave of residents) leave();
  expect(store.status().openLeases).toBe(0);
  store.clear();
  store.checkIntegrity();
  expect(store.pageCount).toBe(0);
  expect(store.hostBytes).toBe(0);
  expect(store.status().tiers.diskBytes).toBe(0);
  await store.close();
  expect(pageFiles(folder)).toEqual([]);
  rmSync(folder, { recursive: true });
}

test("whatever is stored, spilled, damaged and restarted, rows equal the computed ones and nothing is lost", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(operation, { maxLength: 80, size: "max" }),
      fc.integer({ min: 1, max: 12 }),
      fc.integer({ min: 0, max: 16 }),
      runOperations,
    ),
    { numRuns: 150 },
  );
});
