/** What a command touches of the outside, so that a test can hand in its own. */

import { type Clock, systemClock } from "@kvasir/kit";
import { cacheFolder } from "@kvasir/models";
import type { Environment } from "./config/resolve-configuration.ts";

export interface Output {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

export interface CommandContext {
  readonly environment: Environment;
  /** Kvasir's cache folder. */
  readonly cacheDir: string;
  readonly clock: Clock;
  readonly stdout: Output;
  readonly stderr: Output;
}

export function hostContext(): CommandContext {
  const { env: environment, stdout, stderr } = process;
  return { environment, cacheDir: cacheFolder(environment), clock: systemClock, stdout, stderr };
}

/** A pause that keeps the process alive. */
export function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
