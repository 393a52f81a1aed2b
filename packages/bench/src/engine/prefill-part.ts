/** Solo prefill: a fresh prompt of n tokens, one token generated. */

import { complete } from "../completion-client.ts";
import type { Comparison } from "../comparison.ts";
import { type Contender, type Measurement, measureInterleaved, valuesOf, warningsOf } from "../measurement.ts";
import { benchPrefill } from "../peers/llama-tools.ts";
import type { RunningServer } from "../server-process.ts";
import { formatFigure } from "../text-table.ts";
import { type EngineBenchContext, freshPrompt, mustSucceed, type PartResult, reportLine, targetOf } from "./bench-context.ts";

export const PREFILL_TOKENS = [512, 2048, 8000] as const;
const GOAL = { kind: "at-least", ratio: 0.97 } as const;

/** Prompt tokens a second by the server's clock, and by the client's. */
interface PrefillSpeed {
  readonly engine: number;
  readonly wall: number;
}

export async function measurePrefill(context: EngineBenchContext): Promise<PartResult> {
  const comparisons: Comparison[] = [];
  const measurements: Array<Measurement<unknown> & { cell: string }> = [];
  const warnings: string[] = [];
  const { ours, theirs, plan, peers } = context;
  for (const server of [ours, theirs]) await prefillOnce(context, server, 256);
  for (const promptTokens of PREFILL_TOKENS) {
    const cell = `prefill ${promptTokens}`;
    const contenders: Array<Contender<PrefillSpeed>> = [
      { name: ours.name, pid: ours.pid, measure: () => prefillOnce(context, ours, promptTokens) },
      { name: theirs.name, pid: theirs.pid, measure: () => prefillOnce(context, theirs, promptTokens) },
      {
        name: "llama-bench",
        pid: null,
        measure: async () => {
          const { tokensPerSecond } = await benchPrefill(peers, plan.kernel, promptTokens);
          return { engine: tokensPerSecond, wall: tokensPerSecond };
        },
      },
    ];
    const rounds = promptTokens > 4000 ? plan.longRounds : plan.rounds;
    const found = await measureInterleaved(contenders, rounds, (one) =>
      context.report(reportLine(cell, one, `${formatFigure(one.value.engine)} tok/s (wall ${formatFigure(one.value.wall)})`)),
    );
    measurements.push(...found.map((one) => ({ ...one, cell })));
    warnings.push(...warningsOf(cell, found));
    const column = (contender: string, clock: keyof PrefillSpeed) => valuesOf(found, contender).map((speed) => speed[clock]);
    const common = { figure: `Prefill ${promptTokens.toLocaleString("en-US")}`, unit: "tok/s", goal: GOAL };
    comparisons.push(
      {
        ...common,
        clock: "engine",
        peer: "llama-bench",
        ours: column(ours.name, "engine"),
        theirs: column("llama-bench", "engine"),
      },
      {
        ...common,
        clock: "engine",
        peer: theirs.name,
        ours: column(ours.name, "engine"),
        theirs: column(theirs.name, "engine"),
      },
      { ...common, clock: "wall", peer: theirs.name, ours: column(ours.name, "wall"), theirs: column(theirs.name, "wall") },
    );
  }
  return {
    part: "prefill",
    method: [
      "Prefill, engine clock: computed prompt tokens ÷ prefill seconds (from the lane to the first sampled token; llama-server: prompt_ms). llama-bench: its own sample, after its warm-up.",
      "Prefill, wall clock: prompt tokens ÷ time to first token at the client. Each prompt is new; one token is generated.",
    ],
    comparisons,
    tables: [],
    measurements,
    warnings,
  };
}

async function prefillOnce(context: EngineBenchContext, server: RunningServer, promptTokens: number): Promise<PrefillSpeed> {
  const record = mustSucceed(
    server,
    await complete(targetOf(server), { promptTokens: freshPrompt(context, promptTokens), maxTokens: 1 }),
  );
  const computed = promptTokens - (record.cachedTokens ?? 0);
  return { engine: (computed / (record.timings?.prefillMs ?? Number.NaN)) * 1000, wall: (promptTokens / record.endMs) * 1000 };
}
