/**
 * Processes that a benchmark has started and that must not outlive it, whatever ends it: Ctrl-C, a signal, a bug. A child leaves
 * the list when it ends.
 */

import type { ChildProcess } from "node:child_process";
import { messageOf } from "@kvasir/kit";

const living = new Set<ChildProcess>();
let isWatching = false;

/** @returns the same child */
export function own<Child extends ChildProcess>(child: Child): Child {
  if (!isWatching) {
    isWatching = true;
    process.once("exit", () => {
      for (const each of living) each.kill("SIGTERM");
    });
  }
  living.add(child);
  child.once("exit", () => living.delete(child));
  child.once("error", () => living.delete(child));
  return child;
}

/** Runs a command's main function: errors become one message and exit code 1, signals end the children too. */
export async function runCommand(main: () => Promise<void>): Promise<void> {
  process.once("SIGINT", () => process.exit(130));
  process.once("SIGTERM", () => process.exit(143));
  try {
    await main();
  } catch (error) {
    console.error(messageOf(error));
    process.exitCode = 1;
  }
}
