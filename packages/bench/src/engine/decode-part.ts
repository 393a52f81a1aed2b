/** Decode of 1, 2 and 4 sequences together, each from a prompt that its lane already holds. */

import { type CompletionRecord, complete, firstTokenMs, lastTokenMs } from "../completion-client.ts";
import type { Comparison } from "../comparison.ts";
import { type Contender, type Measurement, measureInterleaved, valuesOf, warningsOf } from "../measurement.ts";
import { benchBatchedDecode, benchDecode } from "../peers/llama-tools.ts";
import type { RunningServer } from "../server-process.ts";
import { formatFigure } from "../text-table.ts";
import { type EngineBenchContext, freshPrompt, mustSucceed, type PartResult, reportLine, targetOf } from "./bench-context.ts";

export const DECODE_BATCHES = [1, 2, 4] as const;
const DEPTH_TOKENS = 128;
const OUTPUT_TOKENS = 192;
const GOAL = { kind: "at-least", ratio: 0.97 } as const;

/** Generated tokens a second, all sequences together. */
interface DecodeSpeed {
  readonly engine: number;
  readonly wall: number;
  /** Prompt tokens that were computed although they should have been in the lanes (one a sequence is normal). */
  readonly computedTokens: number;
}

export async function measureDecode(context: EngineBenchContext): Promise<PartResult> {
  const comparisons: Comparison[] = [];
  const measurements: Array<Measurement<unknown> & { cell: string }> = [];
  const warnings: string[] = [];
  const { ours, theirs, plan, peers } = context;
  for (const batch of DECODE_BATCHES) {
    const cell = `decode ×${batch}`;
    const prompts = Array.from({ length: batch }, () => freshPrompt(context, DEPTH_TOKENS));
    for (const server of [ours, theirs])
      await Promise.all(prompts.map((promptTokens) => complete(targetOf(server), { promptTokens, maxTokens: 1 })));
    const kernel = async (speed: Promise<{ tokensPerSecond: number }>): Promise<DecodeSpeed> => {
      const { tokensPerSecond } = await speed;
      return { engine: tokensPerSecond, wall: tokensPerSecond, computedTokens: 0 };
    };
    const contenders: Array<Contender<DecodeSpeed>> = [
      { name: ours.name, pid: ours.pid, measure: () => decodeOnce(ours, prompts) },
      { name: theirs.name, pid: theirs.pid, measure: () => decodeOnce(theirs, prompts) },
      {
        name: "llama-batched-bench",
        pid: null,
        measure: () => kernel(benchBatchedDecode(peers, plan.kernel, batch, DEPTH_TOKENS, OUTPUT_TOKENS)),
      },
    ];
    if (batch === 1)
      contenders.push({
        name: "llama-bench",
        pid: null,
        measure: () => kernel(benchDecode(peers, plan.kernel, DEPTH_TOKENS, OUTPUT_TOKENS)),
      });
    const found = await measureInterleaved(contenders, plan.rounds, (one) =>
      context.report(reportLine(cell, one, `${formatFigure(one.value.engine)} tok/s (wall ${formatFigure(one.value.wall)})`)),
    );
    measurements.push(...found.map((one) => ({ ...one, cell })));
    warnings.push(...warningsOf(cell, found));
    const recomputed = found.filter((one) => one.value.computedTokens > 2 * batch);
    if (recomputed.length > 0)
      warnings.push(
        `${cell}: ${recomputed.length} of ${found.length} runs computed prompts that should have been in their lanes; their rates include prefill`,
      );
    const column = (contender: string, clock: "engine" | "wall") => valuesOf(found, contender).map((speed) => speed[clock]);
    for (const { name } of contenders.slice(1)) {
      const common = { figure: `Decode at batch ${batch}`, unit: "tok/s", peer: name, goal: GOAL };
      comparisons.push({ ...common, clock: "engine", ours: column(ours.name, "engine"), theirs: column(name, "engine") });
      if (name === theirs.name)
        comparisons.push({ ...common, clock: "wall", ours: column(ours.name, "wall"), theirs: column(name, "wall") });
    }
  }
  return {
    part: "decode",
    method: [
      `Decode: ${OUTPUT_TOKENS} tokens a sequence, greedy, from ${DEPTH_TOKENS} tokens that the lane holds from an earlier request (one of them is computed again), all requests sent together.`,
      "Engine clock: sum over the sequences of (output tokens − 1) ÷ decode seconds (first to last sampled token; llama-server: predicted_ms). llama-bench -d and llama-batched-bench: generated tokens ÷ their seconds.",
      "Wall clock: sum of (output tokens − 1) ÷ (last token of all − first token of all) at the client.",
    ],
    comparisons,
    tables: [],
    measurements,
    warnings,
  };
}

async function decodeOnce(server: RunningServer, prompts: ReadonlyArray<readonly number[]>): Promise<DecodeSpeed> {
  const records = await Promise.all(
    prompts.map(async (promptTokens) =>
      mustSucceed(server, await complete(targetOf(server), { promptTokens, maxTokens: OUTPUT_TOKENS })),
    ),
  );
  return {
    engine: records.reduce((total, record) => total + (stepsOf(record) / (record.timings?.decodeMs ?? Number.NaN)) * 1000, 0),
    wall: (records.reduce((total, record) => total + stepsOf(record), 0) / decodeWindowMs(records)) * 1000,
    computedTokens: records.reduce((total, record) => total + (record.promptTokens ?? 0) - (record.cachedTokens ?? 0), 0),
  };
}

/** Decode steps of a sequence: the first token comes from the prefill. */
function stepsOf(record: CompletionRecord): number {
  return (record.outputTokens ?? Number.NaN) - 1;
}

function decodeWindowMs(records: readonly CompletionRecord[]): number {
  const first = Math.min(...records.map((record) => record.dispatchedAtMs + firstTokenMs(record)));
  const last = Math.max(...records.map((record) => record.dispatchedAtMs + lastTokenMs(record)));
  return last - first;
}
