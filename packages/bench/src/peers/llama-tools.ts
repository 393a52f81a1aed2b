/** Runs llama-bench and llama-batched-bench once and reads their figures: the speed of the kernels without any server. */

import { execFile } from "node:child_process";
import { CodedError } from "@kvasir/kit";
import { own } from "../owned-children.ts";
import type { Peers } from "./peer-build.ts";

/** What both sides of a comparison share. */
export interface KernelSettings {
  readonly modelPath: string;
  readonly threads: number;
  /** Most tokens of one decode call, and of one graph. */
  readonly batchTokens: number;
  readonly microBatchTokens: number;
}

export interface KernelSpeed {
  readonly tokensPerSecond: number;
  readonly commandLine: string;
}

/** Flags of llama.cpp's own programs for these settings: f16 KV, flash attention on. */
export function kernelFlags(settings: KernelSettings): string[] {
  const { modelPath, threads, batchTokens, microBatchTokens } = settings;
  return [
    "-m",
    modelPath,
    "-t",
    `${threads}`,
    "-b",
    `${batchTokens}`,
    "-ub",
    `${microBatchTokens}`,
    "-fa",
    "on",
    "-ctk",
    "f16",
    "-ctv",
    "f16",
  ];
}

/** Prompt tokens ÷ seconds of one prefill of `promptTokens` after the program's own warm-up. */
export async function benchPrefill(peers: Peers, settings: KernelSettings, promptTokens: number): Promise<KernelSpeed> {
  return runLlamaBench(peers, [...kernelFlags(settings), "-p", `${promptTokens}`, "-n", "0"]);
}

/** Generated tokens ÷ seconds of one sequence that already holds `depth` tokens. */
export async function benchDecode(peers: Peers, settings: KernelSettings, depth: number, tokens: number): Promise<KernelSpeed> {
  return runLlamaBench(peers, [...kernelFlags(settings), "-p", "0", "-n", `${tokens}`, "-d", `${depth}`]);
}

/**
 * Generated tokens of all sequences ÷ seconds, `batch` sequences that decode together from `depth` tokens on, each in its
 * own stream.
 */
export async function benchBatchedDecode(
  peers: Peers,
  settings: KernelSettings,
  batch: number,
  depth: number,
  tokens: number,
): Promise<KernelSpeed> {
  const context = batch * roundUp(depth + tokens, 256);
  const args = [
    ...kernelFlags(settings),
    "-c",
    `${context}`,
    "-npp",
    `${depth}`,
    "-ntg",
    `${tokens}`,
    "-npl",
    `${batch}`,
    "--no-kv-unified",
    "--output-format",
    "jsonl",
  ];
  const { output, commandLine } = await run(peers.pathOf("llama-batched-bench"), args);
  const line = output.split("\n").find((text) => text.startsWith("{"));
  const row = line === undefined ? undefined : (JSON.parse(line) as { pl?: number; tg?: number; t_tg?: number });
  if (!row?.pl || !row.tg || !row.t_tg) throw unreadable(commandLine, output);
  return { tokensPerSecond: (row.pl * row.tg) / row.t_tg, commandLine };
}

async function runLlamaBench(peers: Peers, args: readonly string[]): Promise<KernelSpeed> {
  const { output, commandLine } = await run(peers.pathOf("llama-bench"), [...args, "-r", "1", "-o", "json"]);
  const rows = JSON.parse(output) as ReadonlyArray<{ n_prompt: number; n_gen: number; samples_ns: readonly number[] }>;
  const row = rows[0];
  const nanoseconds = row?.samples_ns[0];
  if (row === undefined || !nanoseconds) throw unreadable(commandLine, output);
  return { tokensPerSecond: ((row.n_prompt + row.n_gen) / nanoseconds) * 1e9, commandLine };
}

function run(program: string, args: readonly string[]): Promise<{ output: string; commandLine: string }> {
  const commandLine = [program, ...args].join(" ");
  return new Promise((resolve, reject) => {
    const child = execFile(program, args, { maxBuffer: 16 * 1024 * 1024 }, (error, stdout, stderr) => {
      if (error) reject(new CodedError("bench_failed", `${commandLine} failed: ${stderr.slice(-1500) || error.message}`));
      else resolve({ output: stdout, commandLine });
    });
    own(child);
  });
}

function unreadable(commandLine: string, output: string): CodedError {
  return new CodedError("bench_failed", `${commandLine} printed no figures: ${output.slice(0, 500)}`);
}

function roundUp(value: number, step: number): number {
  return Math.ceil(value / step) * step;
}
