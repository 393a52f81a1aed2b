import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { clearCache, describeCache, verifyCache } from "../../src/store/cache-folder.ts";
import { decodeHeader } from "../../src/store/page-file.ts";
import { makeCacheFolder, pageFiles } from "../support/cache-folders.ts";
import { diskOf, fileBytes, openStore, put, sequence } from "../support/stored-rows.ts";

async function fill(folder: string, fingerprint: string, tokens: number): Promise<void> {
  const store = openStore({ hostPages: 50, disk: diskOf(folder, 1000, fingerprint) });
  put(store, sequence(0, tokens));
  await store.spillAll(Number.POSITIVE_INFINITY);
  await store.close();
}

test("a cache is described by model, with its owner", async () => {
  const folder = makeCacheFolder();
  await fill(folder, "model-a", 128);
  await fill(folder, "model-b", 256);
  mkdirSync(join(folder, "not-a-model"));
  const { models, owner } = describeCache(folder);
  expect(owner).toBeNull();
  expect(models.toSorted((one, other) => one.pages - other.pages)).toMatchObject([
    { fingerprint: "model-a", pages: 2, bytes: 2 * fileBytes, temporaryFiles: 0 },
    { fingerprint: "model-b", pages: 4, bytes: 4 * fileBytes },
  ]);
  for (const { oldestMs, newestMs } of models) expect(oldestMs).toBeLessThanOrEqual(newestMs ?? 0);
  const store = openStore({ hostPages: 1, disk: diskOf(folder, 1000) });
  expect(describeCache(folder).owner).toBe(process.pid);
  await store.close();
  expect(describeCache(folder).owner).toBeNull();
});

test("looking at a folder that was never used makes nothing in it", () => {
  const folder = makeCacheFolder();
  expect(describeCache(folder)).toEqual({ models: [], owner: null });
  expect(describeCache(join(folder, "absent"))).toEqual({ models: [], owner: null });
  expect(readdirSync(folder)).toEqual([]);
});

test("clearing removes all pages and nothing else", async () => {
  const folder = makeCacheFolder();
  await fill(folder, "model-a", 128);
  await fill(folder, "model-b", 256);
  writeFileSync(join(folder, "model-b", "notes.txt"), "mine");
  writeFileSync(join(folder, "model-a", "0.page.tmp"), "half");
  expect(clearCache(folder)).toEqual({ files: 7, bytes: 6 * fileBytes + 4 });
  expect(existsSync(join(folder, "model-a"))).toBe(false);
  expect(readFileSync(join(folder, "model-b", "notes.txt"), "utf8")).toBe("mine");
  expect(clearCache(folder)).toEqual({ files: 0, bytes: 0 });
  expect(clearCache(join(folder, "absent"))).toEqual({ files: 0, bytes: 0 });
});

test("a folder in use is not cleared, and not cleaned of bad files", async () => {
  const folder = makeCacheFolder();
  await fill(folder, "model-a", 128);
  const store = openStore({ hostPages: 1, disk: diskOf(folder, 1000) });
  expect(() => clearCache(folder)).toThrow(expect.objectContaining({ code: "cache_folder_in_use" }));
  await expect(verifyCache(folder, { remove: true })).rejects.toMatchObject({ code: "cache_folder_in_use" });
  expect(await verifyCache(folder)).toMatchObject({ files: 2, bad: [] });
  await store.close();
});

test("verifying finds what is damaged and what hangs on it, and removes it only when asked", async () => {
  const folder = makeCacheFolder();
  await fill(folder, "model-a", 320);
  const pathAt = (start: number): string =>
    pageFiles(folder).find((path) => decodeHeader(readFileSync(path))?.start === start) ?? "";
  const [flipped, cut] = [pathAt(128), pathAt(256)];
  const behind = pathAt(192);
  const bytes = readFileSync(flipped);
  bytes.writeUInt8(bytes.readUInt8(400) ^ 1, 400);
  writeFileSync(flipped, bytes);
  truncateSync(cut, 400);
  const { files, bad, removedFiles } = await verifyCache(folder);
  expect({ files, removedFiles }).toEqual({ files: 5, removedFiles: 0 });
  expect(new Map(bad.map(({ path, reason }) => [path, reason]))).toEqual(
    new Map([
      [flipped, "the checksum of its rows differs"],
      [cut, `it has 400 of ${fileBytes} bytes`],
      [behind, "the page before it is missing or bad"],
    ]),
  );
  expect(pageFiles(folder)).toHaveLength(5);
  expect(await verifyCache(folder, { remove: true })).toMatchObject({ removedFiles: 3 });
  expect(await verifyCache(folder)).toMatchObject({ files: 2, bad: [] });
  rmSync(folder, { recursive: true });
  expect(await verifyCache(folder, { remove: true })).toMatchObject({ files: 0, removedFiles: 0 });
});
