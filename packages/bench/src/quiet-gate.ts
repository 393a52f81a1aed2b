/** Stops a benchmark on a busy machine, or lets it run with a loud note when the user insists. */

import { CodedError } from "@kvasir/kit";
import { describeLoad, isQuiet, type MachineLoad, measureLoad } from "./machine-load.ts";

export interface QuietVerdict {
  readonly load: MachineLoad;
  readonly isQuiet: boolean;
  /** A sentence for the head of the report when the machine was not quiet. */
  readonly warning: string | null;
}

/**
 * @param cores threads that the benchmark will use
 * @param isForced go on anyway
 * @throws CodedError bench_failed on a busy machine
 */
export async function requireQuietMachine(cores: number, isForced: boolean): Promise<QuietVerdict> {
  const load = await measureLoad(cores);
  if (isQuiet(load)) return { load, isQuiet: true, warning: null };
  const description = describeLoad(load);
  if (!isForced)
    throw new CodedError(
      "bench_failed",
      `The machine is not quiet: ${description}. Every figure would be wrong. Stop what else runs, or add --force to measure anyway.`,
    );
  return { load, isQuiet: false, warning: `NOT A QUIET MACHINE at the start: ${description}. Do not quote these figures.` };
}
