/** `npm run bench:engine`: Kvasir beside llama.cpp's own programs on the same model, threads, context and batch sizes. */

import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { readChoices, readNumber } from "./command-options.ts";
import type { EnginePlan } from "./engine/bench-context.ts";
import { engineParts, runEngineBench } from "./engine/engine-bench.ts";
import { engineMarkdown, engineTables, withoutFolders } from "./engine/engine-report.ts";
import { kvasirServeCommand, modelPathOf } from "./kvasir-server.ts";
import { fingerprintOf, machineFacts, revision } from "./machine.ts";
import { runCommand } from "./owned-children.ts";
import { llamaServerCommand } from "./peers/llama-server.ts";
import { providePeers } from "./peers/peer-build.ts";
import { requireQuietMachine } from "./quiet-gate.ts";
import { runName, writeResults } from "./result-files.ts";
import { renderPlain } from "./text-table.ts";

const usage = `npm run bench:engine -- [options]
  --parts LIST       of ${engineParts.join(",")} (default: all)
  --rounds N         rounds of a comparison (default 7)
  --long-rounds N    rounds of cells with 8,000-token prompts and of throughput (default 3)
  --latency-requests N  requests of the latency part, each server (default 100)
  --model REF        model name or path of a .gguf file (default smollm2-135m-instruct)
  --threads N        default: all cores
  --lanes N          lanes and slots (default 4)
  --context N        tokens of one lane and slot (default 8192)
  --batch N, --micro-batch N   tokens of one decode call and of one graph (default 512, 512)
  --seed N           of the prompts (default 1)
  --force            measure although the machine is not quiet`;

async function main(args: string[]): Promise<void> {
  const { values: flags } = parseArgs({
    args,
    options: {
      parts: { type: "string", default: engineParts.join(",") },
      rounds: { type: "string", default: "7" },
      "long-rounds": { type: "string", default: "3" },
      "latency-requests": { type: "string", default: "100" },
      model: { type: "string", default: "smollm2-135m-instruct" },
      threads: { type: "string", default: `${availableParallelism()}` },
      lanes: { type: "string", default: "4" },
      context: { type: "string", default: "8192" },
      batch: { type: "string", default: "512" },
      "micro-batch": { type: "string", default: "512" },
      seed: { type: "string", default: "1" },
      force: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (flags.help) return console.log(usage);
  const parts = readChoices(flags.parts, "parts", engineParts);
  const count = (
    name: "rounds" | "long-rounds" | "latency-requests" | "threads" | "lanes" | "context" | "batch" | "micro-batch" | "seed",
    least = 1,
  ) => readNumber(flags[name], { name, least });
  const report = (line: string) => console.error(line);
  const peers = await providePeers(report);
  const plan: EnginePlan = {
    kernel: {
      modelPath: await modelPathOf(flags.model),
      threads: count("threads"),
      batchTokens: count("batch"),
      microBatchTokens: count("micro-batch"),
    },
    lanes: count("lanes"),
    laneTokens: count("context", 8192),
    rounds: count("rounds"),
    longRounds: count("long-rounds"),
    latencyRequests: count("latency-requests"),
    seed: count("seed", 0),
  };
  const quiet = await requireQuietMachine(plan.kernel.threads, flags.force);
  if (quiet.warning) report(quiet.warning);

  const { kernel, lanes, laneTokens } = plan;
  const serveFlags = {
    model: kernel.modelPath,
    threads: kernel.threads,
    lanes,
    "max-concurrency": lanes,
    "max-context-tokens": laneTokens,
    "batch-tokens": kernel.batchTokens,
    "kv-dtype": "f16",
    // the kernels' speed is the subject, and random prompts make outputs that are easier to guess than real ones
    speculation: "off",
  };
  const peerSettings = { ...kernel, slots: lanes, slotTokens: laneTokens };
  const contenders = {
    ours: () => kvasirServeCommand(serveFlags),
    theirs: () => llamaServerCommand(peers, peerSettings),
    theirDefaults: () => llamaServerCommand(peers, { ...peerSettings, usesDefaults: true }),
  };
  const at = new Date().toISOString();
  const outcome = await runEngineBench(parts, plan, peers, contenders, report);
  const run = {
    at,
    command: withoutFolders(["npm run bench:engine", ...(args.length > 0 ? ["--", ...args] : [])].join(" ")),
    machine: machineFacts(),
    revision: revision(),
    fingerprint: fingerprintOf({ plan, serveFlags, peers: peers.origin, machine: machineFacts() }),
    peersOrigin: peers.origin,
    warnings: [...(quiet.warning === null ? [] : [quiet.warning]), ...outcome.failures],
    ...outcome,
  };
  for (const table of engineTables(outcome.parts)) console.log(`\n${renderPlain(table)}`);
  const written = writeResults(runName("engine", new Date(at)), { ...run, plan, quiet }, engineMarkdown(run));
  console.log(`\n${written.join("\n")}`);
  if (outcome.failures.length > 0) process.exitCode = 1;
}

await runCommand(() => main(process.argv.slice(2)));
