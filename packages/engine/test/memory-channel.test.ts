import { describe, expect, test } from "vitest";
import { memoryChannelPair } from "../src/index.ts";
import { turns } from "./support/ipc-harness.ts";

describe("a channel inside one process", () => {
  test("clones messages, keeps their order and never delivers inside send", async () => {
    const [left, right] = memoryChannelPair<{ values: number[] }, never>();
    const received: number[][] = [];
    right.onMessage(({ values }) => received.push(values));
    const values = [1];
    left.send({ values });
    values.push(2);
    left.send({ values });
    expect(received).toEqual([]);
    await turns(1);
    expect(received).toEqual([[1], [1, 2]]);
  });

  test("keeps what comes before the first listener", async () => {
    const [left, right] = memoryChannelPair<string, never>();
    left.send("early");
    await turns(1);
    const received: string[] = [];
    right.onMessage((message) => received.push(message));
    expect(received).toEqual(["early"]);
  });

  test("delivers what was sent before the close, then says closed at both ends", async () => {
    const [left, right] = memoryChannelPair<string, string>();
    const heard: string[] = [];
    right.onMessage((message) => heard.push(message));
    right.onClose(() => heard.push("right closed"));
    left.onClose(() => heard.push("left closed"));
    left.send("last");
    left.close();
    right.close();
    expect(left.send("late")).toBe(false);
    expect(right.send("late")).toBe(false);
    await turns(1);
    expect(heard).toEqual(["last", "left closed", "right closed"]);
    right.onClose(() => heard.push("asked later"));
    await turns(1);
    expect(heard.at(-1)).toBe("asked later");
  });

  test("forgets a listener that was removed", async () => {
    const [left, right] = memoryChannelPair<string, never>();
    const heard: string[] = [];
    const stopHearing = right.onMessage((message) => heard.push(message));
    const stopClose = right.onClose(() => heard.push("closed"));
    stopHearing();
    stopClose();
    left.send("unheard");
    left.close();
    await turns(1);
    expect(heard).toEqual([]);
  });
});
