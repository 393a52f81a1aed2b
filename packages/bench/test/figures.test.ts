import { describe, expect, test } from "vitest";
import { readChoices, readNumber, readNumbers } from "../src/command-options.ts";
import { comparisonTable, summarize } from "../src/comparison.ts";
import { withoutFolders } from "../src/engine/engine-report.ts";
import { fingerprintOf } from "../src/machine.ts";
import { pairRatios, roundOrder, spreadOf } from "../src/pair-ratios.ts";
import { percentilesOf } from "../src/replay/replay-summary.ts";
import { engineFirstTokenMs, readServerTimings } from "../src/server-timings.ts";
import { formatFigure, renderMarkdown, renderPlain } from "../src/text-table.ts";

describe("pair ratios", () => {
  test("divide-inside-each-round-and-then-take-the-median", () => {
    // the ratio of medians would be 20 / 10 = 2
    expect(pairRatios([10, 20, 90], [10, 5, 100])).toEqual({ n: 3, median: 1, min: 0.9, max: 4 });
  });

  test("refuse-rounds-that-do-not-match", () => {
    expect(() => pairRatios([1], [1, 2])).toThrow(/1 values .* 2/);
  });

  test("of-nothing-are-not-a-number", () => {
    expect(spreadOf([])).toEqual({ n: 0, median: Number.NaN, min: Number.NaN, max: Number.NaN });
  });

  test("let-everybody-start-a-round", () => {
    expect([0, 1, 2, 3].map((round) => roundOrder(["a", "b", "c"], round).join(""))).toEqual(["abc", "bca", "cab", "abc"]);
  });
});

describe("percentiles", () => {
  test("are-nearest-rank-and-tell-n", () => {
    expect(percentilesOf(Array.from({ length: 40 }, (_, index) => index + 1))).toEqual({ n: 40, p50: 20, p95: 38, max: 40 });
    expect(percentilesOf([]).p95).toBeNaN();
  });
});

describe("comparison", () => {
  const base = {
    figure: "Prefill 512",
    unit: "tok/s",
    clock: "engine",
    peer: "llama-bench",
    ours: [97, 99, 100],
    theirs: [100, 100, 100],
  } as const;

  test("judges-the-median-ratio-against-the-goal", () => {
    expect(summarize({ ...base, goal: { kind: "at-least", ratio: 0.97 } }).isGoalMet).toBe(true);
    expect(summarize({ ...base, goal: { kind: "at-most", ratio: 0.2 } }).isGoalMet).toBe(false);
    expect(summarize(base).isGoalMet).toBeNull();
  });

  test("prints-medians-ranges-and-n", () => {
    const table = comparisonTable([{ ...base, goal: { kind: "at-least", ratio: 0.97 } }]);
    expect(table.rows).toEqual([
      [
        "Prefill 512, tok/s",
        "engine",
        "llama-bench",
        "99.0 (97.0–100)",
        "100 (100–100)",
        "0.990 (0.970–1.00)",
        "3",
        "≥ 0.970 met",
      ],
    ]);
  });
});

describe("text table", () => {
  const table = {
    columns: ["Name", "n"],
    rows: [
      ["a|b", "1"],
      ["long name", "200"],
    ],
  };

  test("escapes-bars-in-markdown", () => {
    expect(renderMarkdown(table)).toBe("| Name | n |\n|---|---:|\n| a\\|b | 1 |\n| long name | 200 |");
  });

  test("aligns-columns-in-plain-text", () => {
    expect(renderPlain(table)).toBe("Name         n\na|b          1\nlong name  200");
  });

  test("refuses-a-row-of-another-width", () => {
    expect(() => renderPlain({ columns: ["a"], rows: [["1", "2"]] })).toThrow(/2 cells in a table of 1 columns/);
  });

  test("shows-three-significant-digits-and-a-dash-for-the-unknown", () => {
    expect([12_345.6, 123.45, 12.345, 1.2345, 0.12345, Number.NaN].map(formatFigure)).toEqual([
      "12,346",
      "123",
      "12.3",
      "1.23",
      "0.123",
      "–",
    ]);
  });
});

describe("server timings", () => {
  test("are-read-from-our-phases-and-from-llama-server", () => {
    const ours = readServerTimings({ queue_ms: 1, restore_ms: 2, prefill_ms: 30, decode_ms: 400 });
    expect(ours).toEqual({ source: "kvasir", queueMs: 1, restoreMs: 2, prefillMs: 30, decodeMs: 400 });
    expect(ours && engineFirstTokenMs(ours)).toBe(33);
    const theirs = readServerTimings({ cache_n: 0, prompt_n: 5, prompt_ms: 30.5, predicted_n: 3, predicted_ms: 20.25 });
    expect(theirs).toMatchObject({ source: "llama-server", prefillMs: 30.5, decodeMs: 20.25 });
  });

  test("of-an-unknown-shape-are-unknown", () => {
    for (const timings of [undefined, null, 3, {}, { prompt_ms: "12" }]) expect(readServerTimings(timings)).toBeNull();
  });
});

describe("command options", () => {
  test("say-the-value-and-the-rule", () => {
    expect(readNumbers("1024,256", { name: "budgets", least: 0 })).toEqual([1024, 256]);
    for (const text of ["", "x", "1.5", "-1"])
      expect(() => readNumber(text, { name: "rounds", least: 1 })).toThrow(/--rounds .* whole number of at least 1/);
    expect(readNumber("0.5", { name: "ramp", least: 0, isInteger: false })).toBe(0.5);
  });

  test("keep-the-order-of-the-list", () => {
    expect(readChoices("gap,prefill", "parts", ["prefill", "decode", "gap"])).toEqual(["prefill", "gap"]);
    expect(() => readChoices("speed", "parts", ["prefill"])).toThrow(/speed is not known. Choose from prefill/);
  });
});

test("a-report-names-files-but-no-folders", () => {
  expect(withoutFolders("/opt/node/bin/node /home/me/kvasir/main.ts serve --model /models/a.gguf --batch 512")).toBe(
    "node main.ts serve --model a.gguf --batch 512",
  );
});

test("fingerprint-does-not-depend-on-the-order-of-keys", () => {
  expect(fingerprintOf({ a: 1, b: { c: [1, 2], d: undefined } })).toBe(fingerprintOf({ b: { c: [1, 2] }, a: 1 }));
  expect(fingerprintOf({ a: [1, 2] })).not.toBe(fingerprintOf({ a: [2, 1] }));
});
