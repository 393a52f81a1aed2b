/** The real `kvasir` command in processes of their own, with a cache and configuration folder of the test's own. */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { tinyModelPath } from "../../../../fixtures/tiny-models.ts";

const mainPath = fileURLToPath(new URL("../../src/main.ts", import.meta.url));

/** Flags that make a start small and quick. */
export const tinyFlags: readonly string[] = [
  "--model",
  tinyModelPath("tiny-qwen3"),
  "--port",
  "0",
  "--max-context-tokens",
  "4096",
  "--max-concurrency",
  "2",
  "--threads",
  "1",
];

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export class Command {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
  stdout = "";
  stderr = "";
  readonly #waiters = new Set<() => void>();

  constructor(child: ChildProcess) {
    this.child = child;
    child.stdout?.on("data", (chunk: Buffer) => {
      this.stdout += chunk.toString();
      this.#wake();
    });
    child.stderr?.on("data", (chunk: Buffer) => {
      this.stderr += chunk.toString();
      this.#wake();
    });
    this.ended = new Promise((resolve) => {
      child.on("close", (code, signal) => {
        resolve({ code, signal, stdout: this.stdout, stderr: this.stderr });
        this.#wake();
      });
    });
  }

  get hasEnded(): boolean {
    return this.child.exitCode !== null || this.child.signalCode !== null;
  }

  /** The first match in what the command has printed so far or prints later. Fails when it ends without one. */
  async printed(pattern: RegExp): Promise<RegExpExecArray> {
    for (;;) {
      const match = pattern.exec(this.stdout) ?? pattern.exec(this.stderr);
      if (match !== null) return match;
      if (this.hasEnded) throw new Error(`the command ended without ${pattern}:\n${this.stdout}${this.stderr}`);
      await new Promise<void>((resolve) => this.#waiters.add(resolve));
    }
  }

  /** Address of a server once it is ready. */
  async address(): Promise<string> {
    return (await this.printed(/ready on (\S+)/))[1] ?? "";
  }

  #wake(): void {
    for (const wake of this.#waiters) wake();
    this.#waiters.clear();
  }
}

export class Sandbox {
  readonly folder = mkdtempSync(join(tmpdir(), "kvasir-command-"));
  readonly cacheDir = join(this.folder, "cache");
  readonly #commands: Command[] = [];
  readonly #environment: Record<string, string>;

  constructor(environment: Record<string, string> = {}) {
    this.#environment = { KVASIR_CACHE_DIR: this.cacheDir, XDG_CONFIG_HOME: join(this.folder, "config"), ...environment };
  }

  start(arguments_: readonly string[], environment: Record<string, string> = {}): Command {
    const env = { ...process.env, ...this.#environment, ...environment };
    const command = new Command(spawn(process.execPath, [mainPath, ...arguments_], { env, stdio: ["ignore", "pipe", "pipe"] }));
    this.#commands.push(command);
    return command;
  }

  run(arguments_: readonly string[], environment: Record<string, string> = {}): Promise<Ended> {
    return this.start(arguments_, environment).ended;
  }

  /** Ends what still runs, detached servers too. */
  async close(): Promise<void> {
    await this.run(["stop", "--all", "--now"]);
    for (const command of this.#commands) if (!command.hasEnded) command.child.kill("SIGKILL");
    await Promise.all(this.#commands.map((command) => command.ended));
    rmSync(this.folder, { recursive: true, force: true });
  }
}
