/**
 * `kvasir start`: a server of its own session, whose output goes to a log file. Waits until it is ready and shows how it comes
 * along; when somebody stops waiting, the server goes on.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, openSync, renameSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { CodedError, MIB } from "@kvasir/kit";
import { flagName, type OptionKey, optionKeys, options, variableName } from "../config/options.ts";
import type { ConfigurationInput, ResolvedConfiguration } from "../config/resolve-configuration.ts";
import type { CommandContext } from "../context.ts";
import type { StartupMessage } from "../serve/startup-report.ts";
import { ServerStates } from "../servers/server-state.ts";
import { logFileOf } from "./logs.ts";

const mainPath = fileURLToPath(new URL("../main.ts", import.meta.url));
/** A log longer than this is put aside at the next start. */
const longLogBytes = 16 * MIB;

export interface StartOptions {
  readonly waits: boolean;
  readonly flags: ConfigurationInput["flags"];
  readonly file: string | undefined;
}

/** @returns the exit code */
export async function start(
  configuration: ResolvedConfiguration,
  options_: StartOptions,
  context: CommandContext,
): Promise<number> {
  const { port } = configuration.values;
  const running = new ServerStates(context.cacheDir).list().find((state) => state.port === port);
  if (running !== undefined) {
    throw new CodedError(
      "server_already_running",
      `Kvasir runs already on ${running.address} (process ${running.pid}, model ${running.model}); \`kvasir stop --port ${port}\` ends it, --port takes another port.`,
    );
  }
  const logFile = logFileOf(context.cacheDir, port);
  const child = detach(logFile, options_, context);
  if (!options_.waits) {
    child.disconnect();
    child.unref();
    context.stdout.write(`starting, process ${child.pid}; \`kvasir status\` tells when it is ready, its log is ${logFile}\n`);
    return 0;
  }
  return await follow(child, logFile, context);
}

function detach(logFile: string, { flags, file }: StartOptions, { environment }: CommandContext): ChildProcess {
  mkdirSync(dirname(logFile), { recursive: true });
  const log = openLog(logFile);
  const secrets = optionKeys.filter((key) => options[key].isSecret && typeof flags[key] === "string");
  const asVariables = Object.fromEntries(secrets.map((key) => [variableName(key), String(flags[key])]));
  const configFile = file === undefined ? [] : ["--config", file];
  return spawn(process.execPath, [mainPath, "serve", ...configFile, ...argumentsOf(flags), "--detached-log", logFile], {
    detached: true,
    env: { ...environment, ...asVariables },
    stdio: ["ignore", log, log, "ipc"],
    windowsHide: true,
  });
}

function openLog(path: string): number {
  try {
    if (statSync(path).size > longLogBytes) renameSync(path, `${path}.1`);
  } catch {
    // There is none yet.
  }
  return openSync(path, "a", 0o600);
}

/** The flags again, without secrets: those must not stand in a process list. */
function argumentsOf(flags: ConfigurationInput["flags"]): string[] {
  const given = Object.entries(flags).filter(([key]) => !options[key as OptionKey].isSecret);
  return given.map(([key, value]) => (value === true ? `--${flagName(key)}` : `--${flagName(key)}=${value}`));
}

/** Until the server is ready (0), has failed (1), or the person who waits has had enough (130). */
function follow(child: ChildProcess, logFile: string, { stdout, stderr }: CommandContext): Promise<number> {
  return new Promise((resolve) => {
    const end = (code: number): void => {
      process.off("SIGINT", leave);
      if (child.connected) child.disconnect();
      child.unref();
      resolve(code);
    };
    const leave = (): void => {
      stderr.write(
        `\nthe server goes on starting (process ${child.pid}); \`kvasir status\` shows it, \`kvasir stop\` ends it\n`,
      );
      end(130);
    };
    const progress = progressLine(stderr);
    process.on("SIGINT", leave);
    child.on("error", (error) => {
      stderr.write(`kvasir: ${process.execPath} could not be started: ${error.message}\n`);
      end(1);
    });
    child.on("message", (message) => {
      // Only our own `serve` is at the other end.
      const { kind, text } = message as StartupMessage;
      if (kind === "progress") {
        progress.show(text);
        return;
      }
      progress.clear();
      if (kind === "ready") stdout.write(`${text}\nprocess ${child.pid}, log ${logFile}; \`kvasir stop\` ends it\n`);
      else stderr.write(`${text}\n`);
      end(kind === "ready" ? 0 : 1);
    });
    child.on("exit", (code, signal) => {
      progress.clear();
      stderr.write(`kvasir: the server ended (${signal ?? `exit code ${code}`}) before it was ready; its log is ${logFile}\n`);
      end(1);
    });
  });
}

/** One line that is rewritten on a terminal; elsewhere a line when the text before the first number changes. */
function progressLine(stderr: CommandContext["stderr"]): { show(text: string): void; clear(): void } {
  let shownSubject = "";
  return {
    show(text) {
      const subject = text.replace(/\d.*/s, "");
      if (stderr.isTTY === true) stderr.write(`\r\x1b[K${text.slice(0, (stderr.columns ?? 80) - 1)}`);
      else if (subject !== shownSubject) stderr.write(`${text}\n`);
      shownSubject = subject;
    },
    clear() {
      if (stderr.isTTY === true && shownSubject !== "") stderr.write("\r\x1b[K");
    },
  };
}
