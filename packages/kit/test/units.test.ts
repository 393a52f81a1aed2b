import { expect, test } from "vitest";
import { formatBytes, formatCount, formatDuration } from "../src/index.ts";

test.each([
  [0, "0 bytes"],
  [1023, "1023 bytes"],
  [1024, "1.0 KiB"],
  [98_362_432, "93.8 MiB"],
  [-98_362_432, "-93.8 MiB"],
  [5 * 1024 ** 3, "5.0 GiB"],
])("%d bytes read %s", (bytes, text) => {
  expect(formatBytes(bytes)).toBe(text);
});

test("counts are grouped", () => {
  expect(formatCount(131_072)).toBe("131,072");
});

test.each([
  [0, "0s"],
  [59.9, "59s"],
  [60, "1m"],
  [93_784, "1d 2h 3m"],
])("%d seconds read %s", (seconds, text) => {
  expect(formatDuration(seconds)).toBe(text);
});
