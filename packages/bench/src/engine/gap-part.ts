/** How long a running stream stands still while an 8,000-token prompt arrives. */

import { CodedError } from "@kvasir/kit";
import { complete, firstTokenMs, gapsMs } from "../completion-client.ts";
import { measureInterleaved, valuesOf, warningsOf } from "../measurement.ts";
import type { RunningServer } from "../server-process.ts";
import { formatFigure } from "../text-table.ts";
import { type EngineBenchContext, freshPrompt, mustSucceed, type PartResult, reportLine, targetOf } from "./bench-context.ts";

const ARRIVING_TOKENS = 8000;
const RUNNING_PROMPT_TOKENS = 32;
/** Output events of the running stream before the long prompt is sent. */
const SETTLE_EVENTS = 24;

interface StreamGap {
  /** Longest pause of the running stream between dispatch and first token of the long prompt. */
  readonly longestGapMs: number;
  /** Longest pause before the long prompt was sent. */
  readonly quietGapMs: number;
  /** Time to first token of the long prompt. */
  readonly arrivingFirstTokenMs: number;
  /** Output events of the running stream meanwhile. */
  readonly eventsMeanwhile: number;
}

export async function measureGap(context: EngineBenchContext): Promise<PartResult> {
  const { ours, theirs, plan } = context;
  const cell = "stream gap";
  const contenders = [ours, theirs].map((server) => ({
    name: server.name,
    pid: server.pid,
    measure: () => gapOnce(context, server),
  }));
  const found = await measureInterleaved(contenders, plan.longRounds, (one) =>
    context.report(
      reportLine(
        cell,
        one,
        `longest gap ${formatFigure(one.value.longestGapMs)} ms, long prompt's first token ${formatFigure(one.value.arrivingFirstTokenMs)} ms`,
      ),
    ),
  );
  const column = (server: RunningServer, field: keyof StreamGap) => valuesOf(found, server.name).map((gap) => gap[field]);
  const compare = (figure: string, field: keyof StreamGap) => ({
    figure,
    unit: "ms",
    clock: "wall" as const,
    peer: theirs.name,
    ours: column(ours, field),
    theirs: column(theirs, field),
  });
  return {
    part: "gap",
    method: [
      `Gap: a stream runs alone; after ${SETTLE_EVENTS} tokens a new prompt of ${ARRIVING_TOKENS.toLocaleString("en-US")} tokens is sent; the longest pause between two tokens of the running stream until the long prompt's first token. llama-server with its defaults, but for threads, slots and context.`,
    ],
    comparisons: [
      {
        ...compare("Longest gap of a running stream while 8,000 tokens arrive", "longestGapMs"),
        goal: { kind: "at-most", ratio: 0.2 },
      },
      compare("Time to first token of those 8,000 tokens", "arrivingFirstTokenMs"),
      compare("Tokens of the running stream meanwhile", "eventsMeanwhile"),
    ].map((comparison) => (comparison.figure.startsWith("Tokens") ? { ...comparison, unit: "count" } : comparison)),
    tables: [],
    measurements: found.map((one) => ({ ...one, cell })),
    warnings: warningsOf(cell, found),
  };
}

async function gapOnce(context: EngineBenchContext, server: RunningServer): Promise<StreamGap> {
  const target = targetOf(server);
  const stop = new AbortController();
  let settled = () => {};
  const isRunning = new Promise<void>((resolve) => {
    settled = resolve;
  });
  let events = 0;
  const running = complete(target, {
    promptTokens: freshPrompt(context, RUNNING_PROMPT_TOKENS),
    maxTokens: context.plan.laneTokens - RUNNING_PROMPT_TOKENS - 1,
    signal: stop.signal,
    onOutput: () => {
      events++;
      if (events === SETTLE_EVENTS) settled();
    },
  });
  await Promise.race([isRunning, running]);
  const arriving = mustSucceed(
    server,
    await complete(target, { promptTokens: freshPrompt(context, ARRIVING_TOKENS), maxTokens: 1 }),
  );
  stop.abort();
  const stream = await running;
  if (!stream.aborted)
    throw new CodedError(
      "bench_failed",
      `${server.name}: the running stream ended too early: ${stream.error ?? "all its tokens were generated"}`,
    );
  const sentAtMs = arriving.dispatchedAtMs - stream.dispatchedAtMs;
  const answeredAtMs = sentAtMs + firstTokenMs(arriving);
  const before = stream.outputAtMs.filter((atMs) => atMs < sentAtMs);
  // from the last token before the prompt was sent; the pause that the first token ends counts too
  const meanwhile = [
    ...before.slice(-1),
    ...stream.outputAtMs.filter((atMs) => atMs >= sentAtMs && atMs < answeredAtMs),
    answeredAtMs,
  ];
  return {
    longestGapMs: Math.max(...gapsMs(meanwhile)),
    quietGapMs: Math.max(...gapsMs(before)),
    arrivingFirstTokenMs: firstTokenMs(arriving),
    eventsMeanwhile: meanwhile.length - 2,
  };
}
