/** What HTTP, JSON, process border and templates add to the engine's own time, one request at a time. */

import { CodedError, percentile } from "@kvasir/kit";
import { complete, firstTokenMs, lastTokenMs } from "../completion-client.ts";
import { measureInterleaved, valuesOf, warningsOf } from "../measurement.ts";
import { spreadOf } from "../pair-ratios.ts";
import type { RunningServer } from "../server-process.ts";
import { engineFirstTokenMs } from "../server-timings.ts";
import { formatFigure } from "../text-table.ts";
import { type EngineBenchContext, freshPrompt, mustSucceed, type PartResult, targetOf } from "./bench-context.ts";

const PROMPT_TOKENS = 32;
const OUTPUT_TOKENS = 16;
/** p50 of what is added to the time to first token. */
const GOAL_MS = 5;

interface AddedLatency {
  readonly firstTokenMs: number;
  readonly lastTokenMs: number;
}

export async function measureLatency(context: EngineBenchContext): Promise<PartResult> {
  const { ours, theirs, plan } = context;
  const cell = "added latency";
  const once = (server: RunningServer) => addedLatency(context, server);
  for (const server of [ours, theirs]) await once(server);
  const contenders = [ours, theirs].map((server) => ({ name: server.name, pid: server.pid, measure: () => once(server) }));
  const found = await measureInterleaved(contenders, plan.latencyRequests, () => {});
  const rows = [ours, theirs].flatMap(({ name }) =>
    (["firstTokenMs", "lastTokenMs"] as const).map((field) => {
      const values = valuesOf(found, name).map((added) => added[field]);
      const p50 = percentile(values, 50);
      const goal = name === ours.name && field === "firstTokenMs" ? `p50 < ${GOAL_MS} ${p50 < GOAL_MS ? "met" : "missed"}` : "";
      const label = field === "firstTokenMs" ? "added to the first token, ms" : "added to the last token, ms";
      context.report(`${name}: ${label}: p50 ${formatFigure(p50)}, p95 ${formatFigure(percentile(values, 95))}`);
      return [
        label,
        name,
        formatFigure(p50),
        formatFigure(percentile(values, 95)),
        formatFigure(spreadOf(values).max),
        `${values.length}`,
        goal,
      ];
    }),
  );
  return {
    part: "latency",
    method: [
      `Added latency at concurrency 1: client time since dispatch minus the server's own phases (first token: queue + restore + prefill; last token: these + decode), ${PROMPT_TOKENS} new prompt tokens, ${OUTPUT_TOKENS} generated, a new connection each. The client's own work is part of it. llama-server reports no queue phase.`,
    ],
    comparisons: [],
    tables: [
      {
        title: "Latency that the layers around the engine add",
        table: { columns: ["Figure", "Server", "p50", "p95", "max", "n", "Goal"], rows },
      },
    ],
    measurements: found.map((one) => ({ ...one, cell })),
    warnings: warningsOf(
      cell,
      found.filter((one) => one.round % 20 === 0),
    ).slice(0, 5),
  };
}

async function addedLatency(context: EngineBenchContext, server: RunningServer): Promise<AddedLatency> {
  const call = { promptTokens: freshPrompt(context, PROMPT_TOKENS), maxTokens: OUTPUT_TOKENS };
  const record = mustSucceed(server, await complete(targetOf(server), call));
  if (record.timings === null) throw new CodedError("bench_failed", `${server.name} reports no timings`);
  const engineMs = engineFirstTokenMs(record.timings);
  return {
    firstTokenMs: firstTokenMs(record) - engineMs,
    lastTokenMs: lastTokenMs(record) - engineMs - record.timings.decodeMs,
  };
}
