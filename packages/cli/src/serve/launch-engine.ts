/** Starts engine processes for the supervisor and passes on what they write to stderr. */

import { type ChildProcess, fork } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { channelToChild, type ChildMessage, EngineClient, type ParentMessage } from "@kvasir/engine";
import { CodedError } from "@kvasir/kit";
import type { LaunchedEngine } from "@kvasir/server";
import type { EngineConfig } from "../engine-config.ts";

const childPath = fileURLToPath(new URL("../engine-child.ts", import.meta.url));
const keptLines = 20;

export interface EngineOutput {
  /** A line of an engine process; mostly libllama's log. */
  line(text: string): void;
  /** An engine process ended without saying why, with the last lines it wrote. */
  crashed(how: string, lastLines: readonly string[]): void;
}

export class EngineLauncher {
  readonly #config: EngineConfig;
  readonly #output: EngineOutput;
  readonly #children = new Set<ChildProcess>();

  constructor(config: EngineConfig, output: EngineOutput) {
    this.#config = config;
    this.#output = output;
  }

  launch(onProgress: (fraction: number) => void): LaunchedEngine {
    const child = fork(childPath, { serialization: "advanced", stdio: ["ignore", "ignore", "pipe", "ipc"] });
    this.#children.add(child);
    const lastLines = this.#readLines(child);
    let hasSaidWhy = false;
    const exited = new Promise<void>((resolve) => {
      const ended = (): void => {
        this.#children.delete(child);
        resolve();
      };
      child.once("error", () => {
        if (child.pid === undefined) ended();
      });
      child.once("exit", (code, signal) => {
        if (code !== 0 && !hasSaidWhy) this.#output.crashed(signal ?? `exit code ${code}`, lastLines);
        ended();
      });
    });
    const channel = channelToChild<ParentMessage<EngineConfig>, ChildMessage>(child);
    const opened = EngineClient.open(channel, this.#config, { onProgress });
    opened.catch((error: unknown) => {
      hasSaidWhy = error instanceof CodedError && error.code !== "engine_start_failed";
    });
    return {
      opened,
      exited,
      kill: () => kill(child),
    };
  }

  /** The last resort, for processes that do not react. */
  killAll(): void {
    for (const child of this.#children) kill(child);
  }

  #readLines(child: ChildProcess): readonly string[] {
    const lastLines: string[] = [];
    if (child.stderr === null) return lastLines;
    createInterface({ input: child.stderr }).on("line", (text) => {
      lastLines.push(text);
      if (lastLines.length > keptLines) lastLines.shift();
      this.#output.line(text);
    });
    return lastLines;
  }
}

function kill(child: ChildProcess): void {
  if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
}
