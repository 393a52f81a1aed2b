import { ManualClock } from "@kvasir/kit";
import { describe, expect, it } from "vitest";
import { formatProgress, ProgressMeter, progressReporter, type PullProgress } from "../src/pull-progress.ts";

const progress = (bytes: number, extra: Partial<PullProgress> = {}): PullProgress => ({
  label: "tiny",
  bytes,
  totalBytes: 4_194_304,
  bytesPerSecond: 1_048_576,
  source: "hub owner/tiny",
  ...extra,
});

describe("measuring", () => {
  it("gives the rate of the last seconds, without what was there before", () => {
    const clock = new ManualClock();
    const reports: PullProgress[] = [];
    const meter = new ProgressMeter(clock, (report) => reports.push(report), {
      label: "tiny",
      totalBytes: 10_000,
      source: "s",
    });
    meter.start(5_000);
    expect(reports.at(-1)).toMatchObject({ bytes: 5_000, bytesPerSecond: 0 });
    for (let second = 0; second < 3; second++) {
      clock.advance(1_000);
      meter.add(100);
    }
    expect(reports.at(-1)).toMatchObject({ bytes: 5_300, bytesPerSecond: 100 });
    for (let second = 0; second < 6; second++) {
      clock.advance(1_000);
      meter.add(500);
    }
    expect(reports.at(-1)?.bytesPerSecond).toBe(500);
  });

  it("reports at most ten times a second", () => {
    const clock = new ManualClock();
    let reports = 0;
    const meter = new ProgressMeter(clock, () => reports++, { label: "tiny", totalBytes: null, source: "s" });
    meter.start(0);
    for (let i = 0; i < 1_000; i++) {
      clock.advance(1);
      meter.add(1);
    }
    expect(reports).toBe(11);
  });
});

describe("showing", () => {
  it("writes amounts, share, rate and source", () => {
    expect(formatProgress(progress(1_048_576))).toBe("tiny  1.0 MiB of 4.0 MiB  25 %  1.0 MiB/s  hub owner/tiny");
    expect(formatProgress(progress(10, { totalBytes: null, bytesPerSecond: 0 }))).toBe("tiny  10 bytes  hub owner/tiny");
  });

  it("rewrites one line on a terminal, cut to its width, and ends it once", () => {
    const written: string[] = [];
    const reporter = progressReporter(
      { isTTY: true, columns: 40, write: (text: string) => written.push(text) },
      new ManualClock(),
    );
    reporter.onProgress(progress(0));
    reporter.onProgress(progress(1_048_576));
    reporter.finish();
    reporter.finish();
    expect(written).toHaveLength(3);
    expect(written[1]).toBe("\r\x1b[Ktiny  1.0 MiB of 4.0 MiB  25 %  1.0 MiB");
    expect(written[2]).toBe("\n");
  });

  it("writes plain lines elsewhere: the first, one every five seconds, the last once", () => {
    const written: string[] = [];
    const clock = new ManualClock();
    const reporter = progressReporter({ write: (text: string) => written.push(text) }, clock);
    for (let step = 0; step <= 40; step++) {
      reporter.onProgress(progress(step * 104_857.6));
      clock.advance(250);
    }
    for (let again = 0; again < 3; again++) reporter.onProgress(progress(4_194_304));
    reporter.onProgress(progress(0, { source: "unpacking" }));
    reporter.finish();
    expect(written.map((line) => /(\d+) %/.exec(line)?.[1])).toEqual(["0", "50", "100", "0"]);
    expect(written.every((line) => line.endsWith("\n") && !line.includes("\r"))).toBe(true);
  });
});
