/** `npm run bench:replay`: recorded agent sessions, scaled, against fresh servers in turn or against one that runs already. */

import { availableParallelism } from "node:os";
import { parseArgs } from "node:util";
import { formatCount } from "@kvasir/kit";
import { readNumber, readNumbers } from "./command-options.ts";
import { comparisonTable } from "./comparison.ts";
import { firstModelName } from "./completion-client.ts";
import { describeMachine, withoutFolders } from "./engine/engine-report.ts";
import { kvasirServeCommand, modelPathOf, printedConfig, supportedFlags } from "./kvasir-server.ts";
import { fingerprintOf, machineFacts, revision } from "./machine.ts";
import { runCommand } from "./owned-children.ts";
import { llamaServerCommand } from "./peers/llama-server.ts";
import { providePeers } from "./peers/peer-build.ts";
import { requireQuietMachine } from "./quiet-gate.ts";
import { calibrate } from "./replay/calibration.ts";
import { readRecordedSessions } from "./replay/recorded-session.ts";
import {
  describeSummary,
  type MeasuredWorkload,
  measureWorkload,
  type ReplayContender,
  replayInTurn,
  resultOf,
} from "./replay/replay-bench.ts";
import { describeLimit, type ReplayResult, replayComparisons, replayTable } from "./replay/replay-report.ts";
import { pauseFloorSeconds, type ReplayOptions, realWorld, replay } from "./replay/replay-run.ts";
import { planWorkload } from "./replay/workload.ts";
import { runName, writeResults } from "./result-files.ts";
import { renderMarkdown, renderPlain } from "./text-table.ts";

const usage = `npm run bench:replay -- [options]
 workload
  --sessions N  --turns N     sessions and requests of each (default 10, 14)
  --users N  --ramp SECONDS   sessions alive at once, time between their starts (default 10, 4)
  --scale N  --cap N          recorded tokens for one replayed, longest prompt (default 32, 7600)
  --pause-factor X  --pause-cap SECONDS   of recorded pauses (default 0.0625, 3)
  --token-first N  --token-count N   token ids to draw from (default 1000, 40000)
  --seed N                    (default 1)
 one running server
  --base URL                  play against it and start nothing; --model-name, --api-key as it needs them
 both servers, fresh for every run
  --budgets LIST              host cache in MiB (default 1024,256)
  --rounds N                  runs of each server and budget (default 2)
  --similarity X              llama-server's -sps (default 0.8, its best setting for this workload)
  --with-defaults             llama-server with its default -sps too
  --only-ours                 no peer
  --model REF  --threads N  --lanes N  --context N   (default smollm2-135m-instruct, all cores, 4, 8192)
  --speculation off|lookup    of Kvasir (default off: outputs of random prompts are easier to guess than real ones)
  --force                     measure although the machine is not quiet`;

const options = {
  sessions: { type: "string", default: "10" },
  turns: { type: "string", default: "14" },
  users: { type: "string", default: "10" },
  ramp: { type: "string", default: "4" },
  scale: { type: "string", default: "32" },
  cap: { type: "string", default: "7600" },
  "pause-factor": { type: "string", default: "0.0625" },
  "pause-cap": { type: "string", default: "3" },
  "token-first": { type: "string", default: "1000" },
  "token-count": { type: "string", default: "40000" },
  seed: { type: "string", default: "1" },
  base: { type: "string" },
  "model-name": { type: "string" },
  "api-key": { type: "string" },
  budgets: { type: "string", default: "1024,256" },
  rounds: { type: "string", default: "2" },
  similarity: { type: "string", default: "0.8" },
  "with-defaults": { type: "boolean", default: false },
  "only-ours": { type: "boolean", default: false },
  model: { type: "string", default: "smollm2-135m-instruct" },
  threads: { type: "string", default: `${availableParallelism()}` },
  lanes: { type: "string", default: "4" },
  context: { type: "string", default: "8192" },
  speculation: { type: "string", default: "off" },
  force: { type: "boolean", default: false },
  help: { type: "boolean", default: false },
} as const;

type Flags = ReturnType<typeof parseArgs<{ options: typeof options }>>["values"];
type NumberFlag = {
  [Name in keyof typeof options]: (typeof options)[Name] extends { type: "string"; default: string } ? Name : never;
}[keyof typeof options];

const report = (line: string) => console.error(line);

async function main(args: string[]): Promise<void> {
  const { values: flags } = parseArgs({ args, options });
  if (flags.help) return console.log(usage);
  const whole = (name: NumberFlag, least = 1) => readNumber(flags[name], { name, least });
  const real = (name: NumberFlag) => readNumber(flags[name], { name, least: 0, isInteger: false });
  const workloadOptions = {
    sessions: whole("sessions"),
    turns: whole("turns"),
    scale: real("scale"),
    capTokens: whole("cap"),
    pauseFactor: real("pause-factor"),
    pauseCapSeconds: real("pause-cap"),
    seed: whole("seed", 0),
    tokenRange: { first: whole("token-first", 0), count: whole("token-count") },
  };
  const replayOptions = { users: whole("users"), rampSeconds: real("ramp") };
  const workload = measureWorkload(planWorkload(readRecordedSessions(), workloadOptions));
  report(
    `${workloadOptions.sessions} sessions of ${workloadOptions.turns} requests: ${formatCount(workload.promptTokens)} prompt tokens, ${formatCount(workload.unavoidable)} unavoidable; starts and pauses alone take ${pauseFloorSeconds(workload.sessions, replayOptions).toFixed(0)} s`,
  );
  if (flags.base !== undefined) return replayOne(flags.base, flags, workload, replayOptions);

  const rounds = whole("rounds");
  const peers = await providePeers(report);
  const kernel = {
    modelPath: await modelPathOf(flags.model),
    threads: whole("threads"),
    batchTokens: 2048,
    microBatchTokens: 512,
  };
  const lanes = whole("lanes");
  const laneTokens = whole("context", 256);
  const quiet = await requireQuietMachine(kernel.threads, flags.force);
  const warnings = quiet.warning === null ? [] : [quiet.warning];
  const required = {
    model: kernel.modelPath,
    threads: kernel.threads,
    "max-concurrency": lanes,
    "max-context-tokens": laneTokens,
    speculation: flags.speculation,
  };
  const config = await printedConfig(required);
  const calibration = await calibrate(peers, kernel, lanes, report);
  const results: ReplayResult[] = [];
  for (const hostCacheMib of readNumbers(flags.budgets, { name: "budgets", least: 0 })) {
    const serveFlags = { ...required, ...supportedFlags({ "host-cache-mib": hostCacheMib }, config) };
    if (!("host-cache-mib" in serveFlags))
      warnings.push(`kvasir has no --host-cache-mib: with ${hostCacheMib} MiB it ran on its lanes alone`);
    const theirs = (slotSimilarity?: number) =>
      llamaServerCommand(peers, {
        ...kernel,
        slots: lanes,
        slotTokens: laneTokens,
        hostCacheMib,
        ...(slotSimilarity === undefined ? {} : { slotSimilarity }),
      });
    const contenders: ReplayContender[] = [{ server: "kvasir", command: () => kvasirServeCommand(serveFlags) }];
    if (!flags["only-ours"])
      contenders.push({ server: `llama-server -sps ${flags.similarity}`, command: () => theirs(real("similarity")) });
    if (flags["with-defaults"]) contenders.push({ server: "llama-server", command: () => theirs() });
    const measured = await replayInTurn(contenders, hostCacheMib, rounds, workload, replayOptions, calibration, report);
    results.push(...measured.results);
    warnings.push(...measured.warnings);
  }
  const at = new Date();
  const tables = [replayTable(results), comparisonTable(replayComparisons(results, "kvasir"))].filter(
    (table) => table.rows.length > 0,
  );
  for (const table of tables) console.log(`\n${renderPlain(table)}`);
  console.log(`\n${describeLimit(results)}`);
  const machine = machineFacts();
  const { commit, isDirty } = revision();
  const fingerprint = fingerprintOf({
    workloadOptions,
    replayOptions,
    kernel,
    lanes,
    laneTokens,
    peers: peers.origin,
    machine,
  });
  const markdown = [
    `Measured ${at.toISOString().slice(0, 10)} with \`npm run bench:replay${args.length > 0 ? ` -- ${withoutFolders(args.join(" "))}` : ""}\`, revision ${commit}${isDirty ? " with uncommitted changes" : ""}, configuration ${fingerprint}.`,
    describeMachine(machine),
    ...warnings.map((warning) => `**Read with care:** ${warning}`),
    `${formatCount(workload.promptTokens)} prompt tokens, ${formatCount(workload.unavoidable)} unavoidable. ${describeLimit(results)}`,
    ...tables.map(renderMarkdown),
  ].join("\n\n");
  const record = {
    at: at.toISOString(),
    args,
    machine,
    revision: { commit, isDirty },
    fingerprint,
    workloadOptions,
    replayOptions,
    kernel,
    lanes,
    laneTokens,
    calibration,
    quiet,
    warnings,
    results,
  };
  console.log(`\n${writeResults(runName("replay", at), record, markdown).join("\n")}`);
}

/** One run against a server that somebody else started; its cache is as it is. */
async function replayOne(
  baseUrl: string,
  flags: Flags,
  workload: MeasuredWorkload,
  replayOptions: ReplayOptions,
): Promise<void> {
  const target = {
    baseUrl,
    model: flags["model-name"] ?? (await firstModelName(baseUrl)),
    ...(flags["api-key"] === undefined ? {} : { apiKey: flags["api-key"] }),
  };
  const outcome = await replay(workload.sessions, replayOptions, realWorld(target));
  const result = { hostCacheMib: null, server: target.model, round: 0, ...resultOf(workload, outcome, null) };
  console.log(`${renderPlain(replayTable([result]))}\n\n${describeSummary(result.summary)}`);
  for (const error of result.summary.firstErrors) console.error(error);
  if (result.summary.failed > 0) process.exitCode = 1;
}

await runCommand(() => main(process.argv.slice(2)));
