/** The `kvasir serve` command that users start, in a process of its own, on a tiny model. Nothing of it is in this process. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { tinyModelPath } from "../../../../fixtures/tiny-models.ts";

const mainPath = fileURLToPath(new URL("../../../cli/src/main.ts", import.meta.url));

export const tinyModel = "tiny-qwen3";

export class KvasirProcess implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #folder: string;
  #output = "";
  #wake: () => void = () => {};
  readonly ended: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>;

  /** Starts the command and returns at once; `ready` tells when a first token is possible. */
  constructor(flags: readonly string[] = []) {
    this.#folder = mkdtempSync(join(tmpdir(), "kvasir-blackbox-"));
    const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith("KVASIR_"));
    const arguments_ = ["serve", "--model", tinyModelPath(tinyModel), "--port", "0", "--threads", "1", ...flags];
    this.#child = spawn(process.execPath, [mainPath, ...arguments_], {
      env: { ...Object.fromEntries(inherited), KVASIR_CACHE_DIR: join(this.#folder, "cache"), XDG_CONFIG_HOME: this.#folder },
      stdio: ["ignore", "pipe", "pipe"],
    });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream?.on("data", (bytes: Buffer) => {
        this.#output += bytes.toString();
        this.#wake();
      });
    }
    this.ended = once(this.#child, "close").then(([code, signal]) => {
      rmSync(this.#folder, { recursive: true, force: true });
      this.#wake();
      return { code: code as number | null, signal: signal as NodeJS.Signals | null };
    });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  /** What it has printed, both streams. */
  get output(): string {
    return this.#output;
  }

  /** The address, once a first token is possible. */
  async ready(): Promise<string> {
    for (;;) {
      const address = /ready on (http:\S+)/.exec(this.#output)?.[1];
      if (address !== undefined) return address;
      if (this.#child.exitCode !== null) throw new Error(`it ended before it was ready:\n${this.#output}`);
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** The engine process. */
  get enginePid(): number {
    const children = childrenOf(this.pid);
    if (children.length !== 1) throw new Error(`the server has ${children.length} child processes, expected its engine`);
    return children[0] ?? 0;
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      this.#child.kill("SIGTERM");
      // The same signal within a second counts once; another one cuts at once.
      this.#child.kill("SIGINT");
    }
    await this.ended;
  }

  /** `await using`: stopped however the test ends. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}

export function isAlive(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) Z/s.test(readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    // No such process.
    return false;
  }
}

function childrenOf(pid: number): number[] {
  return readdirSync("/proc").flatMap((name) => {
    if (!/^\d+$/.test(name)) return [];
    try {
      const [, parent] = /^\d+ \(.*\) \S (\d+)/s.exec(readFileSync(`/proc/${name}/stat`, "utf8")) ?? [];
      return Number(parent) === pid ? [Number(name)] : [];
    } catch {
      // It ended while we looked.
      return [];
    }
  });
}

/** Value of a series of `/metrics`; labels as they are printed. Null when it is not there. */
export async function metric(url: string, series: string): Promise<number | null> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const line = text.split("\n").find((each) => each.startsWith(`${series} `));
  return line === undefined ? null : Number(line.slice(series.length + 1));
}

/** Waits a little between two looks at another process. */
export async function soon(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 20));
}
