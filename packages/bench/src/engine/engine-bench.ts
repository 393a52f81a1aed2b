/** Runs the chosen parts: both servers up and taking turns, then each alone for the memory figures. */

import { messageOf, SeededRandom } from "@kvasir/kit";
import type { Peers } from "../peers/peer-build.ts";
import { randomPrompt } from "../random-prompt.ts";
import { type RunningServer, type ServerCommand, startServer } from "../server-process.ts";
import type { EngineBenchContext, EnginePlan, PartResult } from "./bench-context.ts";
import { measureDecode } from "./decode-part.ts";
import { measureGap } from "./gap-part.ts";
import { measureLatency } from "./latency-part.ts";
import { type MemoryReading, memoryMethod, memoryPromptTokens, memoryTable, readMemory } from "./memory-part.ts";
import { measurePrefill } from "./prefill-part.ts";
import { measureThroughput } from "./throughput-part.ts";

export const engineParts = ["prefill", "decode", "latency", "gap", "throughput", "memory"] as const;
export type EnginePart = (typeof engineParts)[number];

const turnTakingParts: Readonly<Record<Exclude<EnginePart, "memory">, (context: EngineBenchContext) => Promise<PartResult>>> = {
  prefill: measurePrefill,
  decode: measureDecode,
  latency: measureLatency,
  gap: measureGap,
  throughput: measureThroughput,
};

export interface EngineContenders {
  /** A new command each time: every start takes a port of its own. */
  ours(): Promise<ServerCommand>;
  theirs(): Promise<ServerCommand>;
  /** The peer as a user gets it who sets nothing but the context. */
  theirDefaults(): Promise<ServerCommand>;
}

export interface EngineBenchOutcome {
  readonly parts: readonly PartResult[];
  readonly commandLines: readonly string[];
  /** Parts that could not be measured, and why. */
  readonly failures: readonly string[];
}

export async function runEngineBench(
  parts: readonly EnginePart[],
  plan: EnginePlan,
  peers: Peers,
  contenders: EngineContenders,
  report: (line: string) => void,
): Promise<EngineBenchOutcome> {
  const random = new SeededRandom(plan.seed);
  const results: PartResult[] = [];
  const commandLines = new Set<string>();
  const failures: string[] = [];
  const takeTurns = async (chosen: ReadonlyArray<Exclude<EnginePart, "memory">>, peer: () => Promise<ServerCommand>) => {
    if (chosen.length === 0) return;
    await withServers([contenders.ours, peer], async ([ours, theirs]) => {
      if (ours === undefined || theirs === undefined) return;
      for (const server of [ours, theirs]) commandLines.add(server.commandLine);
      for (const part of chosen) {
        try {
          results.push(await turnTakingParts[part]({ plan, peers, ours, theirs, random, report }));
        } catch (error) {
          // what the other parts measured stays; the report says what is missing
          report(`${part} failed: ${messageOf(error)}`);
          failures.push(`${part} could not be measured: ${messageOf(error).split("\n")[0]}`);
        }
      }
    });
  };
  const takingTurns = parts.filter((part) => part !== "memory");
  await takeTurns(
    takingTurns.filter((part) => part !== "gap"),
    contenders.theirs,
  );
  await takeTurns(
    takingTurns.filter((part) => part === "gap"),
    contenders.theirDefaults,
  );
  if (parts.includes("memory")) {
    const readings: MemoryReading[] = [];
    const prompts = Array.from({ length: plan.lanes }, () =>
      randomPrompt(random, Math.min(memoryPromptTokens, plan.laneTokens - 16)),
    );
    let ourName = "";
    for (const command of [contenders.ours, contenders.theirs]) {
      await withServers([command], async ([server]) => {
        if (server === undefined) return;
        ourName ||= server.name;
        report(`memory of ${server.name}`);
        commandLines.add(server.commandLine);
        readings.push(...(await readMemory(server, prompts)));
      });
    }
    results.push(memoryResult(readings, ourName));
  }
  return { parts: results, commandLines: [...commandLines], failures };
}

function memoryResult(readings: readonly MemoryReading[], ourName: string): PartResult {
  return {
    part: "memory",
    method: [memoryMethod],
    comparisons: [],
    tables: [{ title: "Memory", table: memoryTable(readings, ourName) }],
    measurements: readings.map((reading) => ({
      cell: reading.state,
      contender: reading.server,
      round: 0,
      value: reading.memory,
      wallSeconds: 0,
      foreignCores: null,
      idleContenderSeconds: 0,
    })),
    warnings: readings.length === 0 ? ["memory: this system has no /proc/PID/smaps_rollup"] : [],
  };
}

/** Starts the servers one after the other, and stops them in reverse order, also after a failure. */
async function withServers(
  commands: ReadonlyArray<() => Promise<ServerCommand>>,
  use: (servers: RunningServer[]) => Promise<void>,
): Promise<void> {
  const servers: RunningServer[] = [];
  try {
    for (const command of commands) servers.push(await startServer(await command()));
    await use(servers);
  } finally {
    for (const server of servers.reverse()) await server.close();
  }
}
