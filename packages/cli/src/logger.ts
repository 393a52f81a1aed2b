/** Messages for the person who runs the server: one line each, on stderr, with the time. */

import type { Clock } from "@kvasir/kit";

export const logLevels = ["error", "warn", "info", "debug"] as const;
export type LogLevel = (typeof logLevels)[number];

export interface Logger {
  log(level: LogLevel, message: string): void;
}

export interface LogOutput {
  write(text: string): unknown;
}

/** @param threshold the least important level that is written */
export function createLogger(threshold: LogLevel, clock: Clock, output: LogOutput): Logger {
  const limit = logLevels.indexOf(threshold);
  return {
    log(level, message) {
      if (logLevels.indexOf(level) > limit) return;
      const time = new Date(clock.wallMs()).toISOString();
      output.write(`${time} ${level.padEnd(5)} ${message.replaceAll("\n", "\n  ")}\n`);
    },
  };
}
