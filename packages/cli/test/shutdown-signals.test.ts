import { EventEmitter } from "node:events";
import { ManualClock } from "@kvasir/kit";
import { expect, test } from "vitest";
import { listenForShutdown } from "../src/serve/shutdown-signals.ts";

function listener(): { source: EventEmitter; clock: ManualClock; heard: string[]; stop: () => void } {
  const source = new EventEmitter();
  const clock = new ManualClock();
  const heard: string[] = [];
  return { source, clock, heard, stop: listenForShutdown(source, clock, (count, signal) => heard.push(`${count} ${signal}`)) };
}

test("the same signal within a second is the echo of one Ctrl-C, later it is a second one", () => {
  const { source, clock, heard } = listener();
  source.emit("SIGINT", "SIGINT");
  clock.advance(999);
  source.emit("SIGINT", "SIGINT");
  expect(heard).toEqual(["1 SIGINT"]);
  clock.advance(1000);
  source.emit("SIGINT", "SIGINT");
  expect(heard).toEqual(["1 SIGINT", "2 SIGINT"]);
});

test("another signal is no echo", () => {
  const { source, heard } = listener();
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) source.emit(signal, signal);
  expect(heard).toEqual(["1 SIGTERM", "2 SIGINT", "3 SIGHUP"]);
});

test("nothing is heard after the end of listening", () => {
  const { source, heard, stop } = listener();
  stop();
  source.emit("SIGTERM", "SIGTERM");
  expect([heard, source.eventNames()]).toEqual([[], []]);
});
