/** Several users at once, each with new prompts: how much both phases together get done. */

import { complete } from "../completion-client.ts";
import type { Comparison } from "../comparison.ts";
import { type Measurement, measureInterleaved, valuesOf, warningsOf } from "../measurement.ts";
import type { RunningServer } from "../server-process.ts";
import { formatFigure } from "../text-table.ts";
import { type EngineBenchContext, freshPrompt, mustSucceed, type PartResult, reportLine, targetOf } from "./bench-context.ts";

const CONCURRENCIES = [1, 2, 4, 8] as const;
const REQUESTS_PER_USER = 2;
const PROMPT_TOKENS = 512;
const OUTPUT_TOKENS = 64;

export async function measureThroughput(context: EngineBenchContext): Promise<PartResult> {
  const { ours, theirs, plan } = context;
  const comparisons: Comparison[] = [];
  const measurements: Array<Measurement<unknown> & { cell: string }> = [];
  const warnings: string[] = [];
  for (const users of CONCURRENCIES) {
    const cell = `${users} users`;
    const contenders = [ours, theirs].map((server) => ({
      name: server.name,
      pid: server.pid,
      measure: () => tokensPerSecond(context, server, users),
    }));
    const found = await measureInterleaved(contenders, plan.longRounds, (one) =>
      context.report(reportLine(cell, one, `${formatFigure(one.value)} tok/s`)),
    );
    measurements.push(...found.map((one) => ({ ...one, cell })));
    warnings.push(...warningsOf(cell, found));
    comparisons.push({
      figure: `Throughput of ${users} user${users === 1 ? "" : "s"}`,
      unit: "tok/s",
      clock: "wall",
      peer: theirs.name,
      ours: valuesOf(found, ours.name),
      theirs: valuesOf(found, theirs.name),
    });
  }
  return {
    part: "throughput",
    method: [
      `Throughput: each user sends ${REQUESTS_PER_USER} requests one after the other, ${PROMPT_TOKENS} new prompt tokens and ${OUTPUT_TOKENS} generated; prompt and output tokens of all requests ÷ (last response − first dispatch). With more users than lanes (${plan.lanes}) the rest waits in the queue.`,
    ],
    comparisons,
    tables: [],
    measurements,
    warnings,
  };
}

async function tokensPerSecond(context: EngineBenchContext, server: RunningServer, users: number): Promise<number> {
  const prompts = Array.from({ length: users }, () =>
    Array.from({ length: REQUESTS_PER_USER }, () => freshPrompt(context, PROMPT_TOKENS)),
  );
  const beganMs = performance.now();
  const tokens = await Promise.all(
    prompts.map(async (own) => {
      let done = 0;
      for (const promptTokens of own) {
        const record = mustSucceed(server, await complete(targetOf(server), { promptTokens, maxTokens: OUTPUT_TOKENS }));
        done += promptTokens.length + (record.outputTokens ?? Number.NaN);
      }
      return done;
    }),
  );
  return (tokens.reduce((total, count) => total + count, 0) / (performance.now() - beganMs)) * 1000;
}
