import { existsSync } from "node:fs";
import { utimes, writeFile } from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { isAlive, withFileLock } from "../src/file-lock.ts";
import { temporaryFolder } from "./support/folders.ts";

const noProcess = 999_999_999;

describe("a file lock", () => {
  it("lets one work at a time and is gone afterwards, also after a failure", async () => {
    const path = join(await temporaryFolder(), "sub", "lock");
    let running = 0;
    let most = 0;
    let waited = 0;
    const work = async (): Promise<void> => {
      most = Math.max(most, ++running);
      expect(existsSync(path)).toBe(true);
      await new Promise((resolve) => setImmediate(resolve));
      running--;
    };
    const lock = (): Promise<void> => withFileLock(path, { onWaiting: () => waited++ }, work);
    await Promise.all([lock(), lock(), lock()]);
    expect(most).toBe(1);
    expect(waited).toBeGreaterThan(0);
    await expect(withFileLock(path, {}, () => Promise.reject(new Error("failed")))).rejects.toThrow("failed");
    expect(existsSync(path)).toBe(false);
  });

  it.each<[string, object, Date]>([
    ["of a process that is gone", { pid: noProcess, host: hostname() }, new Date()],
    ["without a sign of life for long", { pid: process.pid, host: "elsewhere" }, new Date(Date.now() - 60_000)],
  ])("takes over a lock %s", async (_, holder, time) => {
    const path = join(await temporaryFolder(), "lock");
    await writeFile(path, JSON.stringify(holder));
    await utimes(path, time, time);
    expect(await withFileLock(path, {}, () => Promise.resolve("done"))).toBe("done");
  });

  it("waits for a living holder until it is called off", async () => {
    const path = join(await temporaryFolder(), "lock");
    await writeFile(path, JSON.stringify({ pid: noProcess, host: "another machine" }));
    const controller = new AbortController();
    const waiting = withFileLock(path, { signal: controller.signal, onWaiting: () => controller.abort() }, () =>
      Promise.resolve(),
    );
    await expect(waiting).rejects.toThrow(/abort/i);
    expect(existsSync(path)).toBe(true);
  });

  it("tells living processes", () => {
    expect(isAlive(process.pid)).toBe(true);
    expect(isAlive(noProcess)).toBe(false);
  });
});
