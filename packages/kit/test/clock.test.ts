import { expect, test } from "vitest";
import { ManualClock, systemClock } from "../src/index.ts";

test("timers fire in order of their due time, and each sees the time it was due", () => {
  const clock = new ManualClock();
  const fired: string[] = [];
  clock.startTimer(30, () => fired.push(`late at ${clock.monotonicMs()}`));
  clock.startTimer(10, () => fired.push(`early at ${clock.monotonicMs()}`));
  clock.advance(29);
  expect(fired).toEqual(["early at 10"]);
  clock.advance(1);
  expect(fired).toEqual(["early at 10", "late at 30"]);
});

test("a timer that a timer starts fires within the same advance when it is due", () => {
  const clock = new ManualClock();
  const fired: number[] = [];
  const again = (): void => {
    fired.push(clock.monotonicMs());
    if (fired.length < 3) clock.startTimer(5, again);
  };
  clock.startTimer(5, again);
  clock.advance(100);
  expect(fired).toEqual([5, 10, 15]);
  expect(clock.monotonicMs()).toBe(100);
});

test("a stopped timer does not fire and does not stay pending", () => {
  const clock = new ManualClock();
  const stop = clock.startTimer(5, () => expect.fail("a stopped timer fired"));
  expect(clock.pendingTimers).toBe(1);
  stop();
  clock.advance(10);
  expect(clock.pendingTimers).toBe(0);
});

test("wall time moves with monotonic time", () => {
  const clock = new ManualClock(0, 1000);
  clock.advance(234);
  expect(clock.wallMs()).toBe(1234);
});

test("the system clock fires its timers", async () => {
  const before = systemClock.monotonicMs();
  const held = setInterval(() => {}, 1000);
  await new Promise<void>((fired) => systemClock.startTimer(1, fired));
  clearInterval(held);
  expect(systemClock.monotonicMs()).toBeGreaterThan(before);
});
