import { ManualClock, type RequestId } from "@kvasir/kit";
import { describe, expect, test } from "vitest";
import { ReaderWindows } from "../src/ipc/reader-windows.ts";
import { IpcHarness, submit, turns } from "./support/ipc-harness.ts";

const readerWindow = { highTokens: 8, lowTokens: 4, stalledReaderMs: 60_000 };
const slowId = "slow" as RequestId;

describe("a slow reader", () => {
  test("is held at its window while the others go on", async () => {
    const client = await new IpcHarness({ serve: { readerWindow } }).connect();
    const slow = submit(client, "slow", { maxTokens: 100 });
    const quick = submit(client, "quick", { maxTokens: 100, promptTokens: Int32Array.of(7, 7) });
    let taken = 0;
    while (!quick.ended) {
      await turns(1);
      client.consumed("quick" as RequestId, quick.tokens.length - taken);
      taken = quick.tokens.length;
    }
    expect(quick.tokens).toHaveLength(100);
    expect(slow.ended).toBe(false);
    expect(slow.tokens.length).toBeLessThanOrEqual(readerWindow.highTokens);
  });

  test("goes on where it was held once it has read, and gets the same text", async () => {
    const unlimited = await new IpcHarness().connect();
    const whole = submit(unlimited, "slow", { maxTokens: 60 });
    await whole.end();
    const client = await new IpcHarness({ serve: { readerWindow } }).connect();
    const slow = submit(client, "slow", { maxTokens: 60 });
    let taken = 0;
    while (!slow.ended) {
      await turns(4);
      expect(slow.tokens.length - taken).toBeLessThanOrEqual(readerWindow.highTokens);
      client.consumed(slowId, Math.min(3, slow.tokens.length - taken));
      taken = Math.min(taken + 3, slow.tokens.length);
    }
    expect(slow.tokens).toEqual(whole.tokens);
  });

  test("that takes nothing for a minute is cancelled", async () => {
    const harness = new IpcHarness({ serve: { readerWindow } });
    const client = await harness.connect();
    const slow = submit(client, "slow", { maxTokens: 100 });
    await slow.until(() => slow.tokens.length >= readerWindow.highTokens);
    await turns(3);
    harness.clock.advance(59_999);
    await turns(3);
    expect(slow.ended).toBe(false);
    harness.clock.advance(1);
    await slow.end();
    expect(slow.last).toMatchObject({ kind: "finished", result: { reason: "cancelled" } });
    expect(harness.clock.pendingTimers).toBe(0);
  });
});

describe("a reader window", () => {
  function recorded(): { windows: ReaderWindows; clock: ManualClock; calls: string[] } {
    const calls: string[] = [];
    const clock = new ManualClock();
    const windows = new ReaderWindows(readerWindow, clock, {
      setPaused: (id, paused) => calls.push(`${paused ? "hold" : "resume"} ${id}`),
      cancel: (id) => calls.push(`cancel ${id}`),
    });
    return { windows, clock, calls };
  }

  test("holds at the high mark and resumes at the low one, once each", () => {
    const { windows, calls } = recorded();
    windows.sent(slowId, 7);
    expect(calls).toEqual([]);
    windows.sent(slowId, 1);
    windows.sent(slowId, 1);
    expect(calls).toEqual(["hold slow"]);
    windows.consumed(slowId, 4);
    expect(calls).toEqual(["hold slow"]);
    windows.consumed(slowId, 1);
    windows.consumed(slowId, 99);
    expect(calls).toEqual(["hold slow", "resume slow"]);
  });

  test("starts the stall anew with every hold", () => {
    const { windows, clock, calls } = recorded();
    windows.sent(slowId, 8);
    clock.advance(40_000);
    windows.consumed(slowId, 8);
    windows.sent(slowId, 8);
    clock.advance(40_000);
    expect(calls).toEqual(["hold slow", "resume slow", "hold slow"]);
    clock.advance(20_000);
    expect(calls.at(-1)).toBe("cancel slow");
  });

  test("forgets a request that has ended", () => {
    const { windows, clock, calls } = recorded();
    windows.sent(slowId, 8);
    windows.forget(slowId);
    windows.consumed(slowId, 8);
    clock.advance(100_000);
    expect(calls).toEqual(["hold slow"]);
    expect(windows.size).toBe(0);
    expect(clock.pendingTimers).toBe(0);
  });
});
