/** What the parts of the engine benchmark share: both servers up, one generator of prompts, one plan. */

import { CodedError, type SeededRandom } from "@kvasir/kit";
import type { CompletionRecord, CompletionTarget } from "../completion-client.ts";
import type { Comparison } from "../comparison.ts";
import type { Measurement } from "../measurement.ts";
import type { KernelSettings } from "../peers/llama-tools.ts";
import type { Peers } from "../peers/peer-build.ts";
import { randomPrompt } from "../random-prompt.ts";
import type { RunningServer } from "../server-process.ts";
import type { TextTable } from "../text-table.ts";

export interface EnginePlan {
  readonly kernel: KernelSettings;
  /** Lanes of ours, slots of llama-server. */
  readonly lanes: number;
  readonly laneTokens: number;
  /** Rounds of every comparison; the longest cells take `longRounds`. */
  readonly rounds: number;
  readonly longRounds: number;
  readonly latencyRequests: number;
  readonly seed: number;
}

export interface EngineBenchContext {
  readonly plan: EnginePlan;
  readonly peers: Peers;
  readonly ours: RunningServer;
  readonly theirs: RunningServer;
  readonly random: SeededRandom;
  readonly report: (line: string) => void;
}

/** What one part hands to the report. */
export interface PartResult {
  readonly part: string;
  /** How the figures came about, formulas included. */
  readonly method: readonly string[];
  readonly comparisons: readonly Comparison[];
  readonly tables: ReadonlyArray<{ readonly title: string; readonly table: TextTable }>;
  /** Every single measurement, unrounded. */
  readonly measurements: ReadonlyArray<Measurement<unknown> & { readonly cell: string }>;
  /** What a reader must know about this run: foreign load, missing cache hits. */
  readonly warnings: readonly string[];
}

export function targetOf(server: RunningServer): CompletionTarget {
  return { baseUrl: server.baseUrl, model: server.model };
}

/** A prompt that nobody has computed before. */
export function freshPrompt(context: EngineBenchContext, tokens: number): number[] {
  return randomPrompt(context.random, tokens);
}

/** The record, or an error that names the server: a benchmark has no use for a failed request. */
export function mustSucceed(server: RunningServer, record: CompletionRecord): CompletionRecord {
  if (record.error !== null) throw new CodedError("bench_failed", `${server.name}: ${record.error}\n${server.lastOutput()}`);
  return record;
}

export function reportLine(cell: string, measurement: Measurement<unknown>, figure: string): string {
  return `${cell} · round ${measurement.round + 1} · ${measurement.contender}: ${figure}`;
}
