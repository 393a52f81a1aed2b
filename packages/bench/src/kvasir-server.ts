/** The `kvasir` command of this checkout, as a user would start it: another process, reached over HTTP only. */

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { CodedError } from "@kvasir/kit";
import { repositoryRoot } from "./machine.ts";
import { resultsFolder } from "./result-files.ts";
import { freePort, type ServerCommand, withoutServerSettings } from "./server-process.ts";

/** A configuration file of the user's must not bend a measurement: there is none in this folder. */
const environment = { XDG_CONFIG_HOME: resultsFolder };

const mainPath = join(repositoryRoot, "packages/cli/src/main.ts");

/** Flags of `kvasir serve`, by long name; `true` for a flag without a value. */
export type ServeFlags = Readonly<Record<string, string | number | true>>;

export async function kvasirServeCommand(flags: ServeFlags): Promise<ServerCommand> {
  const port = await freePort();
  const args = [mainPath, "serve", "--port", `${port}`, ...flagArguments(flags)];
  return { name: "kvasir", command: process.execPath, args, environment, port, readyPath: "/ready" };
}

function flagArguments(flags: ServeFlags): string[] {
  return Object.entries(flags).flatMap(([name, value]) => (value === true ? [`--${name}`] : [`--${name}`, `${value}`]));
}

/** The frozen configuration that `kvasir serve` would run with. */
export async function printedConfig(flags: ServeFlags): Promise<Readonly<Record<string, unknown>>> {
  const text = await kvasir(["serve", "--print-config", ...flagArguments(flags)]);
  return JSON.parse(text.slice(text.indexOf("{"))) as Record<string, unknown>;
}

/**
 * Those of `wanted` that this version of `kvasir serve` knows: a flag is known when the printed configuration has its name,
 * in whatever case (`host-cache-mib`, `hostCacheMib`).
 */
export function supportedFlags(wanted: ServeFlags, config: Readonly<Record<string, unknown>>): ServeFlags {
  const known = new Set(namesIn(config));
  return Object.fromEntries(Object.entries(wanted).filter(([name]) => known.has(plainName(name))));
}

function namesIn(value: unknown): string[] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([name, member]) => [plainName(name), ...namesIn(member)]);
}

function plainName(name: string): string {
  return name.replaceAll(/[-_]/g, "").toLowerCase();
}

/** Path of the model's file, downloaded when it is missing. */
export async function modelPathOf(model: string): Promise<string> {
  if (existsSync(model)) return model;
  const path = (await kvasir(["pull", model])).trim().split("\n").at(-1) ?? "";
  if (!existsSync(path))
    throw new CodedError("bench_failed", `kvasir pull ${model} names no file. Pass the path of a .gguf file.`);
  return path;
}

/** Standard output of one `kvasir` call. */
function kvasir(args: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(
      process.execPath,
      [mainPath, ...args],
      { env: { ...withoutServerSettings(process.env), ...environment } },
      (error, stdout, stderr) => {
        if (error)
          reject(new CodedError("bench_failed", `kvasir ${args.join(" ")} failed: ${stderr.slice(-800) || error.message}`));
        else resolve(stdout);
      },
    );
  });
}
