/** The replay against the real command on a tiny model: what the benchmark does, small. */

import { afterAll, beforeAll, expect, test } from "vitest";
import { tinyModelPath } from "../../../fixtures/tiny-models.ts";
import { kvasirServeCommand, printedConfig, supportedFlags } from "../src/kvasir-server.ts";
import { readRecordedSessions } from "../src/replay/recorded-session.ts";
import { measureWorkload, resultOf } from "../src/replay/replay-bench.ts";
import { realWorld, replay } from "../src/replay/replay-run.ts";
import { defaultWorkload, planWorkload } from "../src/replay/workload.ts";
import { type RunningServer, startServer } from "../src/server-process.ts";

const flags = { model: tinyModelPath("tiny-qwen3"), threads: 1, "max-concurrency": 2, "max-context-tokens": 1024 };
const workload = measureWorkload(
  planWorkload(readRecordedSessions(), {
    ...defaultWorkload,
    sessions: 2,
    turns: 4,
    scale: 128,
    capTokens: 800,
    pauseFactor: 0,
    // the tiny vocabulary has 256 bytes, some of them ordinary text
    tokenRange: { first: 32, count: 90 },
  }),
);

let server: RunningServer;
beforeAll(async () => {
  server = await startServer(await kvasirServeCommand(flags));
});
afterAll(() => server.close());

test("a-replay-on-a-cold-server-computes-the-unavoidable-and-little-more", async () => {
  const target = { baseUrl: server.baseUrl, model: server.model };
  const outcome = await replay(workload.sessions, { users: 2, rampSeconds: 0 }, realWorld(target));
  const { summary } = resultOf(workload, outcome, null);
  expect(summary).toMatchObject({ requests: 8, failed: 0, firstErrors: [] });
  expect(summary.outputTokens).toBe(
    workload.sessions.flatMap(({ requests }) => requests).reduce((sum, { maxTokens }) => sum + maxTokens, 0),
  );
  // two lanes for two sessions: nothing is lost but the shared head, and the last prompt token of a turn that only repeats
  const computed = summary.computedTokens ?? Number.NaN;
  expect(computed).toBeGreaterThanOrEqual(summary.unavoidableTokens);
  expect(computed).toBeLessThan(summary.promptTokens / 2);
  expect(outcome.rows.filter(({ turn }) => turn > 0).every(({ record }) => (record.cachedTokens ?? 0) > 0)).toBe(true);
  for (const { record } of outcome.rows) expect(record.timings?.source).toBe("kvasir");
});

test("the-printed-configuration-tells-which-flags-exist", async () => {
  const config = await printedConfig(flags);
  expect(supportedFlags({ threads: 1, "kv-dtype": "f16", "no-such-flag": 1 }, config)).toEqual({
    threads: 1,
    "kv-dtype": "f16",
  });
});
