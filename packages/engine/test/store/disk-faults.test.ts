import { type ChildProcessWithoutNullStreams, execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { ManualClock } from "@kvasir/kit";
import { describe, expect, onTestFinished, test } from "vitest";
import { decodeHeader, encodeHeader } from "../../src/store/page-file.ts";
import type { PrefixStore } from "../../src/store/prefix-store.ts";
import { asOrdinaryUser, makeCacheFolder, pageFiles, setWritable } from "../support/cache-folders.ts";
import { diskOf, fileBytes, openStore, put, restored, rowsOf, sequence } from "../support/stored-rows.ts";

const forever = Number.POSITIVE_INFINITY;
const tokens = sequence(0, 256);

function open(folder: string, clock = new ManualClock()): PrefixStore {
  const store = openStore({ hostPages: 50, clock, disk: diskOf(folder, 1000) });
  onTestFinished(() => store.close());
  return store;
}

/** A folder with one session of four pages. */
async function filledFolder(): Promise<string> {
  const folder = makeCacheFolder();
  const store = open(folder);
  put(store, tokens);
  await store.spillAll(forever);
  await store.close();
  return folder;
}

function fileOfPageAt(folder: string, start: number): string {
  const path = pageFiles(folder).find((file) => decodeHeader(readFileSync(file))?.start === start);
  return path ?? expect.fail(`no page at ${start}`);
}

function flipBit(path: string, at: number): void {
  const bytes = readFileSync(path);
  bytes.writeUInt8(bytes.readUInt8(at) ^ 4, at);
  writeFileSync(path, bytes);
}

async function loadAll(store: PrefixStore): Promise<number> {
  const lease = store.lease(store.match("", tokens));
  const loaded = await store.load(lease.match);
  expect(restored(store, loaded)).toEqual(rowsOf(tokens.subarray(0, loaded.tokens)));
  lease.release();
  store.checkIntegrity();
  return loaded.tokens;
}

describe("a damaged file is dropped with everything behind it, and computed again", () => {
  const damages: ReadonlyArray<readonly [string, (path: string) => void]> = [
    ["a bit of the rows flipped", (path) => flipBit(path, fileBytes - 5)],
    ["a bit of the checksum flipped", (path) => flipBit(path, 17)],
    ["a bit of a token flipped", (path) => flipBit(path, 80)],
    ["cut in the rows", (path) => truncateSync(path, fileBytes - 10)],
    ["cut in the header", (path) => truncateSync(path, 30)],
    ["emptied", (path) => truncateSync(path, 0)],
    ["deleted", (path) => rmSync(path)],
    [
      "replaced by a folder",
      (path) => {
        rmSync(path);
        mkdirSync(path);
      },
    ],
  ];
  test.for(damages)("%s, while the store is open", async ([, damage]) => {
    const folder = await filledFolder();
    const store = open(folder);
    damage(fileOfPageAt(folder, 128));
    expect(await loadAll(store)).toBe(128);
    expect(store.match("", tokens).tokens).toBe(128);
    expect(store.status().counters.droppedPages).toBe(2);
    expect(put(store, tokens)).toBe(256);
    rmSync(join(folder, "model-a"), { recursive: true });
    mkdirSync(join(folder, "model-a"));
    expect(await loadAll(store)).toBe(256);
  });

  test.for(damages)("%s, before the store opens", async ([, damage]) => {
    const folder = await filledFolder();
    damage(fileOfPageAt(folder, 128));
    const store = open(folder);
    expect(await loadAll(store)).toBe(128);
    put(store, tokens);
    store.checkIntegrity();
  });
});

test.for([true, false])("a file that lies under another page's name is not used (store open: %s)", async (isOpen) => {
  const folder = await filledFolder();
  const before = isOpen ? open(folder) : null;
  renameSync(fileOfPageAt(folder, 192), fileOfPageAt(folder, 64));
  expect(await loadAll(before ?? open(folder))).toBe(64);
});

test("a file whose key is not that of its tokens is not used", async () => {
  const folder = await filledFolder();
  const path = fileOfPageAt(folder, 192);
  const contents = readFileSync(path);
  const header = decodeHeader(contents) ?? expect.fail("no header");
  const key = "0123456789abcdef0123456789abcdef";
  const rows = contents.subarray(header.headerBytes);
  writeFileSync(join(folder, "model-a", `${key}.page`), Buffer.concat([encodeHeader({ ...header, key }, rows), rows]));
  rmSync(path);
  expect(await loadAll(open(folder))).toBe(192);
  expect(pageFiles(folder)).toHaveLength(3);
});

test("pages behind a lost one that others lease stay readable for them", async () => {
  const folder = await filledFolder();
  const store = open(folder);
  const lease = store.lease(store.match("", tokens));
  const loaded = await store.load(lease.match);
  store.clear("host");
  rmSync(fileOfPageAt(folder, 0));
  // Nobody reads the lost file while its page is in host memory.
  expect(await loadAll(store)).toBe(256);
  expect(restored(store, loaded)).toEqual(rowsOf(tokens));
  lease.release();
  store.clear("host");
  put(store, sequence(0, 320));
  const tail = store.lease(store.match("", sequence(0, 320)));
  const part = await store.load(tail.match);
  expect(part.tokens).toBe(0);
  // The page at 256 came from a lane and has left the tree; its slot returns with the lease.
  store.checkIntegrity();
  expect(store.pageCount).toBe(0);
  expect(store.hostBytes).toBeGreaterThan(0);
  tail.release();
  expect(store.hostBytes).toBe(0);
  store.checkIntegrity();
});

test("what a crash left half written is removed at the next start", async () => {
  const folder = await filledFolder();
  const temporary = `${fileOfPageAt(folder, 64)}.tmp`;
  writeFileSync(temporary, "half");
  open(folder).checkIntegrity({ verify: true });
  expect(existsSync(temporary)).toBe(false);
  expect(pageFiles(folder)).toHaveLength(4);
});

test("a folder that vanishes stops the spilling for 30 seconds, not the store", async () => {
  const folder = makeCacheFolder();
  const clock = new ManualClock();
  const store = open(folder, clock);
  put(store, tokens);
  expect(await store.spill()).toBe(true);
  renameSync(join(folder, "model-a"), join(folder, "gone"));
  expect(await store.spill()).toBe(false);
  expect(store.status().tiers).toMatchObject({
    writeFault: expect.stringContaining("ENOENT"),
    diskPages: 1,
    diskBytes: fileBytes,
  });
  expect(store.status().tiers.faults.write).toBe(1);
  renameSync(join(folder, "gone"), join(folder, "model-a"));
  clock.advance(29_999);
  expect(await store.spill()).toBe(false);
  clock.advance(1);
  expect(await store.spillAll(forever)).toBe(3);
  expect(store.status().tiers.writeFault).toBeNull();
  store.checkIntegrity({ verify: true });
});

test("a folder that becomes read-only is read on, and written again when it can be", async () => {
  const folder = await filledFolder();
  await asOrdinaryUser(folder, async () => {
    const clock = new ManualClock();
    const store = openStore({ hostPages: 50, clock, disk: diskOf(folder, 1000) });
    setWritable(folder, false);
    put(store, sequence(5000, 64));
    expect(await store.spill()).toBe(false);
    expect(store.status().tiers.writeFault).toMatch(/EACCES/);
    expect(await loadAll(store)).toBe(256);
    flipBit(fileOfPageAt(folder, 192), fileBytes - 1);
    store.clear("host");
    expect(await loadAll(store)).toBe(192);
    // The damaged file could not be removed: it still counts.
    expect(store.status().tiers).toMatchObject({ diskPages: 3, diskBytes: 4 * fileBytes });
    setWritable(folder, true);
    put(store, tokens);
    clock.advance(30_000);
    expect(await store.spillAll(forever)).toBe(1);
    expect(store.status().tiers).toMatchObject({ diskPages: 4, diskBytes: 4 * fileBytes });
    store.checkIntegrity({ verify: true });
    await store.close();
  });
});

test("a folder that is read-only at the start is used for reading, and the status says so", async () => {
  const folder = await filledFolder();
  await asOrdinaryUser(folder, async () => {
    setWritable(folder, false);
    const store = openStore({ hostPages: 50, disk: diskOf(folder, 1000) });
    expect(store.status().tiers.writeFault).toContain("cannot be written");
    expect(await loadAll(store)).toBe(256);
    put(store, sequence(5000, 64));
    expect(await store.spill()).toBe(false);
    store.clear();
    store.checkIntegrity();
    await store.close();
    expect(pageFiles(folder)).toHaveLength(4);
    setWritable(folder, true);
  });
});

test("a cache folder that cannot be made leaves the store in host memory", async () => {
  const root = makeCacheFolder();
  writeFileSync(join(root, "file"), "");
  const store = open(join(root, "file", "cache"));
  expect(store.status().tiers.writeFault).toContain("ENOTDIR");
  expect(put(store, tokens)).toBe(256);
  expect(await store.spill()).toBe(false);
  expect(await loadAll(store)).toBe(256);
});

const child = fileURLToPath(new URL("../support/store-child.ts", import.meta.url));

/** Lines of a child's output as they come. */
async function* linesOf(process: ChildProcessWithoutNullStreams): AsyncGenerator<string> {
  let rest = "";
  for await (const chunk of process.stdout.setEncoding("utf8")) {
    const lines = `${rest}${chunk}`.split("\n");
    rest = lines.pop() ?? "";
    yield* lines;
  }
}

const hasEnded = (process: ChildProcessWithoutNullStreams): Promise<void> =>
  new Promise((resolve) => {
    process.once("close", () => resolve());
  });

test.for([1, 6, 23])("a process killed after %i spilled pages leaves only whole pages, and the folder free", async (pages) => {
  const folder = makeCacheFolder();
  const killed = spawn(process.execPath, [child, folder, "fill"]);
  let spilled = 0;
  for await (const line of linesOf(killed)) {
    if (line === "spilled") spilled++;
    if (spilled === pages) break;
  }
  const ended = hasEnded(killed);
  killed.kill("SIGKILL");
  await ended;
  const store = open(folder);
  store.checkIntegrity({ verify: true });
  expect(store.status().tiers.diskPages).toBeGreaterThanOrEqual(pages);
  for (let session = 0; session * 4 < pages; session++) {
    const own = sequence(1000 * session, 200);
    const lease = store.lease(store.match("", own));
    const loaded = await store.load(lease.match);
    expect(loaded.tokens).toBe(lease.match.tokens);
    expect(loaded.tokens).toBeGreaterThan(0);
    expect(restored(store, loaded)).toEqual(rowsOf(own.subarray(0, loaded.tokens)));
    lease.release();
  }
  expect(store.status().tiers.faults).toEqual({ write: 0, read: 0, checksum: 0 });
  expect(readdirSync(join(folder, "model-a")).filter((name) => name.endsWith(".tmp"))).toEqual([]);
});

test("a second server on the folder is refused, with the first one's process, until that one dies", async () => {
  const folder = makeCacheFolder();
  const first = spawn(process.execPath, [child, folder, "fill"]);
  const ended = hasEnded(first);
  for await (const line of linesOf(first)) if (line === "open") break;
  expect(() => open(folder)).toThrow(
    expect.objectContaining({ code: "cache_folder_in_use", message: expect.stringContaining(`process ${first.pid}`) }),
  );
  first.kill("SIGKILL");
  await ended;
  open(folder).checkIntegrity({ verify: true });
});

test("two stores of one process cannot share a folder either", async () => {
  const folder = makeCacheFolder();
  const store = open(folder);
  expect(() => open(folder)).toThrow(/used by process/);
  await store.close();
  open(folder);
});

test("a write that the system cuts short is no page", async () => {
  const folder = makeCacheFolder();
  // The limit, of 512 or 1,024 bytes, lies inside of the page.
  const limited = spawn("sh", ["-c", 'ulimit -f 1; exec "$0" "$@"', process.execPath, child, folder, "once"]);
  const lines: string[] = [];
  for await (const line of linesOf(limited)) lines.push(line);
  expect(JSON.parse(lines.at(-1) ?? "")).toMatchObject({
    spilled: false,
    diskPages: 0,
    diskBytes: 0,
    writeFault: expect.stringContaining("EFBIG"),
  });
  expect(readdirSync(join(folder, "model-a"))).toEqual([]);
});

/** Mounts a file system of 64 KiB over the folder. @returns its unmount, or null where that is not allowed */
function mountSmallDisk(folder: string): (() => void) | null {
  if (process.platform !== "linux" || process.getuid?.() !== 0) return null;
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], { stdio: "ignore" });
    return () => {
      // Lazily: a failed test leaves the store open.
      execFileSync("umount", ["-l", folder]);
    };
  } catch {
    // A container without the right to mount.
    return null;
  }
}

test("a full disk stops the spilling, and what is on it stays sound", async ({ skip }) => {
  const folder = makeCacheFolder();
  const unmount = mountSmallDisk(folder) ?? skip("needs the right to mount a tmpfs");
  try {
    const clock = new ManualClock();
    const store = openStore({ hostPages: 500, clock, disk: diskOf(folder, 1000) });
    const long = sequence(0, 64 * 40);
    put(store, long);
    const written = await store.spillAll(forever);
    expect(written).toBeGreaterThan(0);
    expect(written).toBeLessThan(40);
    expect(store.status().tiers.writeFault).toContain("ENOSPC");
    store.checkIntegrity({ verify: true });
    store.clear("host");
    const lease = store.lease(store.match("", long));
    const loaded = await store.load(lease.match);
    expect(loaded.tokens).toBe(64 * written);
    expect(restored(store, loaded)).toEqual(rowsOf(long.subarray(0, loaded.tokens)));
    lease.release();
    // Room comes back: the next try after the back-off writes.
    store.clear();
    put(store, sequence(9000, 64));
    clock.advance(30_000);
    expect(await store.spill()).toBe(true);
    await store.close();
  } finally {
    unmount();
  }
});
