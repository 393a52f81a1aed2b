/** Resident memory with the same context: each server alone, so that no page of the model file is shared between the two. */

import { formatBytes } from "@kvasir/kit";
import { complete } from "../completion-client.ts";
import type { ProcessMemory } from "../process-usage.ts";
import { memoryOf } from "../process-usage.ts";
import type { RunningServer } from "../server-process.ts";
import { formatFigure, type TextTable } from "../text-table.ts";
import { mustSucceed, targetOf } from "./bench-context.ts";

const FILL_TOKENS = 2048;

export interface MemoryReading {
  readonly server: string;
  readonly state: "after the first request" | "after every lane was used";
  readonly memory: ProcessMemory;
}

/**
 * @param server running alone
 * @param prompts one prompt a lane
 */
export async function readMemory(server: RunningServer, prompts: ReadonlyArray<readonly number[]>): Promise<MemoryReading[]> {
  const readings: MemoryReading[] = [];
  const read = (state: MemoryReading["state"]) => {
    const memory = memoryOf(server.pid);
    if (memory !== null) readings.push({ server: server.name, state, memory });
  };
  const use = async (promptTokens: readonly number[]) =>
    mustSucceed(server, await complete(targetOf(server), { promptTokens, maxTokens: 8 }));
  await use((prompts[0] ?? [1]).slice(0, 64));
  read("after the first request");
  await Promise.all(prompts.map((prompt) => use(prompt.slice(0, FILL_TOKENS))));
  read("after every lane was used");
  return readings;
}

export const memoryPromptTokens = FILL_TOKENS;

export const memoryMethod = `Memory: each server alone, sums over the server and its child processes from /proc/PID/smaps_rollup. Proportional: a page that n processes share counts 1/n for each. Anonymous: without pages of the model file and of libraries. After one request of 64 tokens, and after ${FILL_TOKENS.toLocaleString("en-US")} tokens in every lane.`;

export function memoryTable(readings: readonly MemoryReading[], ourName: string): TextTable {
  return {
    columns: ["Server", "Processes", "Proportional", "Resident", "Anonymous", "Proportional ÷ peer's"],
    rows: readings.map(({ server, state, memory }) => {
      const peer = readings.find((other) => other.server !== server && other.state === state);
      const ratio = server === ourName && peer ? formatFigure(memory.proportionalBytes / peer.memory.proportionalBytes) : "";
      return [
        `${server}, ${state}`,
        `${memory.processes}`,
        formatBytes(memory.proportionalBytes),
        formatBytes(memory.residentBytes),
        formatBytes(memory.anonymousBytes),
        ratio,
      ];
    }),
  };
}
