/** What every function that looks for or loads models needs from its caller. */

import { homedir } from "node:os";
import { join } from "node:path";
import { type Clock, systemClock } from "@kvasir/kit";
import type { Environment } from "./hub-environment.ts";
import type { OnProgress } from "./pull-progress.ts";

export interface ModelOptions {
  /** Kvasir's own cache folder; models are in `models` below it. */
  readonly cacheDir: string;
  /** Environment for the hub (`HF_…`) and for pip or uv. */
  readonly env: Environment;
  readonly onProgress?: OnProgress;
  /** Ends a download. What has arrived of a hub file is kept for the next time. */
  readonly signal?: AbortSignal;
  readonly clock?: Clock;
}

/** The options with nothing left open but the signal. */
export interface CompleteModelOptions extends ModelOptions {
  readonly onProgress: OnProgress;
  readonly clock: Clock;
}

export function completeOptions(options: ModelOptions): CompleteModelOptions {
  return { ...options, onProgress: options.onProgress ?? (() => {}), clock: options.clock ?? systemClock };
}

/** `KVASIR_CACHE_DIR`, or the place where caches usually are. */
export function cacheFolder(env: Environment): string {
  return env["KVASIR_CACHE_DIR"] || join(env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "kvasir");
}

export function modelsFolder(cacheDir: string): string {
  return join(cacheDir, "models");
}
