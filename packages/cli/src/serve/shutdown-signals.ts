/**
 * What signals mean to a server: the first asks it to drain, a second to cut. One Ctrl-C can arrive twice, from the terminal and
 * from the npm that runs us, so the same signal within a second is an echo; another signal is not.
 */

import type { Clock } from "@kvasir/kit";

const echoMs = 1000;
const shutdownSignals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

export interface SignalSource {
  on(signal: NodeJS.Signals, listener: (signal: NodeJS.Signals) => void): unknown;
  off(signal: NodeJS.Signals, listener: (signal: NodeJS.Signals) => void): unknown;
}

/** Calls `onSignal` with 1, 2, … Returns what ends the listening. */
export function listenForShutdown(
  source: SignalSource,
  clock: Clock,
  onSignal: (count: number, signal: string) => void,
): () => void {
  let count = 0;
  const lastMs = new Map<string, number>();
  const listener = (signal: NodeJS.Signals): void => {
    const nowMs = clock.monotonicMs();
    const isEcho = nowMs - (lastMs.get(signal) ?? Number.NEGATIVE_INFINITY) < echoMs;
    lastMs.set(signal, nowMs);
    if (!isEcho) onSignal(++count, signal);
  };
  for (const signal of shutdownSignals) source.on(signal, listener);
  return () => {
    for (const signal of shutdownSignals) source.off(signal, listener);
  };
}
