import { statSync, utimesSync } from "node:fs";
import { join } from "node:path";
import { ManualClock } from "@kvasir/kit";
import { expect, onTestFinished, test } from "vitest";
import { PrefixStore } from "../../src/store/prefix-store.ts";
import { makeCacheFolder, pageFiles } from "../support/cache-folders.ts";
import { diskOf, fileBytes, openStore, pageBytes, put, restored, rowsOf, sequence } from "../support/stored-rows.ts";

interface Settings {
  folder?: string;
  hostPages?: number;
  diskPages?: number;
  fingerprint?: string;
  clock?: ManualClock;
}

function open({ folder = makeCacheFolder(), hostPages = 20, diskPages = 100, fingerprint, clock }: Settings = {}): {
  store: PrefixStore;
  folder: string;
  clock: ManualClock;
} {
  const time = clock ?? new ManualClock();
  const store = openStore({ hostPages, clock: time, disk: diskOf(folder, diskPages, fingerprint) });
  onTestFinished(() => store.close());
  return { store, folder, clock: time };
}

const forever = Number.POSITIVE_INFINITY;

async function loadAndRestore(store: PrefixStore, tokens: Int32Array, namespace = ""): Promise<number> {
  const lease = store.lease(store.match(namespace, tokens));
  const loaded = await store.load(lease.match);
  expect(restored(store, loaded)).toEqual(rowsOf(tokens.subarray(0, loaded.tokens)));
  store.touch(loaded);
  lease.release();
  store.checkIntegrity({ verify: true });
  return loaded.tokens;
}

test("what was spilled is there after a restart, token for token, in its own namespace", async () => {
  const { store, folder } = open();
  const tokens = sequence(0, 200);
  put(store, tokens, "alice");
  expect(await store.spillAll(forever)).toBe(4);
  await store.close();
  const { store: next } = open({ folder });
  expect(next.match("bob", tokens).tokens).toBe(0);
  const match = next.match("alice", sequence(0, 150));
  expect(match).toMatchObject({ tokens: 150, hostTokens: 0, diskTokens: 150 });
  expect(await loadAndRestore(next, sequence(0, 150), "alice")).toBe(150);
  expect(next.match("alice", tokens)).toMatchObject({ hostTokens: 192, diskTokens: 8 });
  expect(next.status().counters).toMatchObject({ loadedPages: 3, diskHits: 1, restoredDiskTokens: 150, hostHits: 0 });
});

test("equal content gives equal files, whoever stored it", async () => {
  const first = open();
  const second = open();
  for (const { store } of [first, second]) {
    put(store, sequence(0, 130), "alice");
    put(store, sequence(500, 64), "bob");
    await store.spillAll(forever);
  }
  const names = (folder: string): string[] =>
    pageFiles(folder)
      .map((path) => path.slice(folder.length))
      .toSorted();
  expect(names(first.folder)).toEqual(names(second.folder));
  expect(names(first.folder)).toHaveLength(4);
});

test("files are private, and hold neither namespace nor salt", async () => {
  const { store, folder } = open();
  put(store, sequence(0, 64), "secret-salt");
  await store.spill();
  for (const path of pageFiles(folder)) expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(statSync(join(folder, "model-a")).mode & 0o777).toBe(0o700);
});

test("the most valuable page is written first, but never before its parent", async () => {
  const { store, clock } = open();
  put(store, sequence(0, 256));
  clock.advance(100_000);
  put(store, sequence(5000, 128));
  const order: string[] = [];
  let sizes = [0, 0];
  while (await store.spill()) {
    const now = [sequence(0, 256), sequence(5000, 128)].map((tokens) => {
      store.checkIntegrity({ verify: true });
      return store.match("", tokens).pages.filter((page) => page.isOnDisk).length;
    });
    order.push(now[0] === sizes[0] ? "young" : "old");
    sizes = now;
  }
  expect(order).toEqual(["young", "young", "old", "old", "old", "old"]);
});

test("host memory holds what is hot while the disk holds all of it", async () => {
  const { store, clock } = open({ hostPages: 4 });
  for (let session = 0; session < 5; session++) {
    clock.advance(1000);
    expect(put(store, sequence(1000 * session, 128))).toBe(128);
    await store.spillAll(forever);
  }
  store.checkIntegrity({ verify: true });
  expect(store.status().tiers).toMatchObject({
    hostPages: 4,
    diskPages: 10,
    hostBytes: 4 * pageBytes,
    diskBytes: 10 * fileBytes,
  });
  for (let session = 0; session < 5; session++) expect(await loadAndRestore(store, sequence(1000 * session, 128))).toBe(128);
  expect(store.hostBytes).toBeLessThanOrEqual(4 * pageBytes);
});

test("a page that is on disk leaves host memory before one that is not", async () => {
  const { store, clock } = open({ hostPages: 2 });
  put(store, sequence(0, 64));
  clock.advance(1000);
  await store.spillAll(forever);
  put(store, sequence(5000, 64));
  store.touch(store.match("", sequence(0, 64)));
  put(store, sequence(9000, 64));
  expect(store.match("", sequence(5000, 64)).hostTokens).toBe(64);
  expect(store.match("", sequence(0, 64))).toMatchObject({ hostTokens: 0, diskTokens: 64 });
});

test("new rows behind a head that is only on disk are stored and found", async () => {
  const { store, clock } = open({ hostPages: 2 });
  put(store, sequence(0, 128));
  await store.spillAll(forever);
  put(store, sequence(5000, 128));
  clock.advance(1000);
  expect(store.match("", sequence(0, 128))).toMatchObject({ hostTokens: 0, diskTokens: 128 });
  expect(put(store, sequence(0, 192))).toBe(192);
  expect(store.match("", sequence(0, 192))).toMatchObject({ hostTokens: 64, diskTokens: 128 });
  store.checkIntegrity({ verify: true });
});

test("a disk budget that is spent keeps what is worth most, heads before tails", async () => {
  const { store, clock, folder } = open({ diskPages: 4, hostPages: 100 });
  for (let session = 0; session < 4; session++) {
    put(store, sequence(1000 * session, 128));
    await store.spillAll(forever);
    clock.advance(600_000);
    const { diskBytes, diskBudgetBytes } = store.status().tiers;
    expect(diskBytes).toBeLessThanOrEqual(diskBudgetBytes);
    store.checkIntegrity({ verify: true });
  }
  await store.close();
  const { store: next } = open({ folder, diskPages: 4 });
  expect(next.match("", sequence(3000, 128)).tokens).toBe(128);
  expect(next.match("", sequence(0, 128)).tokens).toBe(0);
  expect(pageFiles(folder)).toHaveLength(4);
});

test("a smaller budget at the next start removes tails, of the session written longest ago first", async () => {
  for (const old of [0, 5000]) {
    const { store, folder } = open();
    for (const start of [old, 5000 - old]) {
      put(store, sequence(start, 256));
      await store.spillAll(forever);
      if (start === old) for (const path of pageFiles(folder)) utimesSync(path, 1000, 1000);
    }
    await store.close();
    const { store: next } = open({ folder, diskPages: 6 });
    expect(next.match("", sequence(old, 256)).tokens).toBe(128);
    expect(next.match("", sequence(5000 - old, 256)).tokens).toBe(256);
    expect(pageFiles(folder)).toHaveLength(6);
    next.checkIntegrity({ verify: true });
  }
});

test("files whose rows have another size than the layout are not used", async () => {
  const { store, folder } = open();
  put(store, sequence(0, 128));
  await store.spillAll(forever);
  await store.close();
  const next = new PrefixStore({
    layout: { rowBytes: [4, 4], bytesPerToken: 8 },
    hostBudgetBytes: 1e6,
    disk: diskOf(folder, 100),
    clock: new ManualClock(),
    recomputeMs: (from, to) => to - from,
  });
  onTestFinished(() => next.close());
  expect(next.match("", sequence(0, 128)).tokens).toBe(0);
  expect(pageFiles(folder)).toEqual([]);
});

test("pages of another model are counted, never used, and go first", async () => {
  const { store, folder } = open({ fingerprint: "model-b" });
  put(store, sequence(0, 192));
  for (let second = 1; await store.spill(); second++) {
    // File times are coarse: spread them as if the writes had taken longer.
    for (const path of pageFiles(folder, "model-b")) if (statSync(path).mtimeMs > 1e6) utimesSync(path, second, second);
  }
  await store.close();
  const { store: next } = open({ folder, diskPages: 4 });
  expect(next.match("", sequence(0, 192)).tokens).toBe(0);
  expect(next.status().tiers).toMatchObject({ diskPages: 0, setAsideFiles: 3, setAsideBytes: 3 * fileBytes });
  put(next, sequence(5000, 128));
  await next.spillAll(forever);
  expect(next.status().tiers).toMatchObject({ diskPages: 2, setAsideFiles: 2 });
  await next.close();
  // Of the other model its tail went, not its head.
  const { store: last } = open({ folder, fingerprint: "model-b" });
  expect(last.match("", sequence(0, 192)).tokens).toBe(128);
});

test("leased pages keep their files", async () => {
  const { store, clock } = open({ diskPages: 2 });
  put(store, sequence(0, 128));
  await store.spillAll(forever);
  const lease = store.lease(store.match("", sequence(0, 128)));
  clock.advance(1e9);
  put(store, sequence(5000, 128));
  expect(await store.spill()).toBe(false);
  store.clear();
  expect(store.match("", sequence(0, 128)).tokens).toBe(128);
  lease.release();
  put(store, sequence(5000, 128));
  expect(await store.spillAll(forever)).toBe(2);
  store.checkIntegrity({ verify: true });
});

test("two loads of the same pages read them once", async () => {
  const { store, folder } = open();
  put(store, sequence(0, 640));
  await store.spillAll(forever);
  await store.close();
  const { store: next } = open({ folder });
  const match = next.match("", sequence(0, 640));
  const loaded = await Promise.all([next.load(match), next.load(match)]);
  expect(loaded.map(({ tokens }) => tokens)).toEqual([640, 640]);
  expect(next.status().counters.loadedPages).toBe(10);
  next.checkIntegrity();
});

test("no more than two pages are read at a time, whoever asks", async () => {
  const { store, folder } = open({ hostPages: 40 });
  const sessions = [0, 1000, 2000].map((start) => sequence(start, 640));
  for (const tokens of sessions) put(store, tokens);
  await store.spillAll(forever);
  await store.close();
  const { store: next } = open({ folder, hostPages: 40 });
  const progress = { isDone: false };
  let readsAtOnce = 0;
  const loading = Promise.all(sessions.map((tokens) => next.load(next.match("", tokens)))).finally(() => {
    progress.isDone = true;
  });
  while (!progress.isDone) {
    readsAtOnce = Math.max(readsAtOnce, next.status().tiers.readsUnderWay);
    next.checkIntegrity();
    await new Promise(setImmediate);
  }
  expect(readsAtOnce).toBe(2);
  expect((await loading).map(({ tokens }) => tokens)).toEqual([640, 640, 640]);
});

test("a load that host memory cannot hold gives its beginning", async () => {
  const { store, folder } = open();
  put(store, sequence(0, 640));
  await store.spillAll(forever);
  await store.close();
  const { store: next } = open({ folder, hostPages: 3 });
  expect(await loadAndRestore(next, sequence(0, 640))).toBe(192);
  expect(next.hostBytes).toBeLessThanOrEqual(3 * pageBytes);
  expect(next.match("", sequence(0, 640)).tokens).toBe(640);
});

test("a load that is aborted stops and keeps what it has", async () => {
  const { store, folder } = open();
  put(store, sequence(0, 640));
  await store.spillAll(forever);
  await store.close();
  const { store: next } = open({ folder });
  const abort = new AbortController();
  const match = next.match("", sequence(0, 640));
  const loading = next.load(match, abort.signal);
  abort.abort();
  expect((await loading).tokens).toBeLessThanOrEqual(128);
  next.checkIntegrity();
  expect(next.status().openLeases).toBe(0);
});

test("spilling stops at its deadline", async () => {
  const { store, clock } = open();
  put(store, sequence(0, 128));
  expect(await store.spillAll(clock.monotonicMs())).toBe(0);
  expect(await store.spillAll(clock.monotonicMs() + 1)).toBe(2);
});

test("a closed store writes and reads nothing more, and the folder is free", async () => {
  const { store, folder } = open();
  put(store, sequence(0, 640));
  await store.spill();
  const spilling = store.spill();
  await store.close();
  await store.close();
  expect(await spilling).toBe(true);
  expect(await store.spill()).toBe(false);
  expect(pageFiles(folder)).toHaveLength(2);
  const { store: next } = open({ folder });
  const loading = next.load(next.match("", sequence(0, 640)));
  await next.close();
  expect((await loading).tokens).toBeLessThanOrEqual(128);
  next.checkIntegrity();
});

test("clearing the disk takes rows along that hang on a file", async () => {
  const { store, clock, folder } = open({ hostPages: 2 });
  put(store, sequence(0, 128));
  await store.spillAll(forever);
  put(store, sequence(5000, 128));
  clock.advance(1000);
  put(store, sequence(0, 192));
  const lease = store.lease(store.match("", sequence(0, 192)));
  store.clear("disk");
  expect(store.match("", sequence(0, 192))).toMatchObject({ hostTokens: 64, diskTokens: 128 });
  lease.release();
  store.clear("disk");
  expect(store.match("", sequence(0, 192)).tokens).toBe(0);
  expect(store.match("", sequence(5000, 64)).tokens).toBe(64);
  expect(pageFiles(folder)).toEqual([]);
  store.checkIntegrity({ verify: true });
});

test("clearing one tier leaves the other", async () => {
  const { store, folder } = open();
  put(store, sequence(0, 128));
  await store.spillAll(forever);
  store.clear("host");
  expect(store.hostBytes).toBe(0);
  expect(store.match("", sequence(0, 128)).diskTokens).toBe(128);
  expect(await loadAndRestore(store, sequence(0, 128))).toBe(128);
  store.clear("disk");
  expect(pageFiles(folder)).toHaveLength(0);
  expect(store.match("", sequence(0, 128)).hostTokens).toBe(128);
  store.clear();
  expect(store.pageCount).toBe(0);
  store.checkIntegrity({ verify: true });
});
