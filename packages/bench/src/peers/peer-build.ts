/**
 * Builds llama-server, llama-bench and llama-batched-bench from the source that the pinned node-llama-cpp package carries: the
 * same llama.cpp release as the prebuilt libraries, so that a comparison differs in nothing but the server.
 *
 * The result lives in `<cache>/peers/<stamp>`; the stamp covers package version, build flags and the CPU's vector instructions
 * (the build is native). A build happens in a folder of its own that is renamed when it is whole.
 */

import { execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, homedir } from "node:os";
import { join } from "node:path";
import { CodedError } from "@kvasir/kit";
import { fingerprintOf, vectorFlags } from "../machine.ts";
import { own } from "../owned-children.ts";

export const PEER_PACKAGE = "node-llama-cpp@3.22.1";
const BUNDLE_PATH = "package/llama/gitRelease.bundle";
const TARGETS = ["llama-server", "llama-bench", "llama-batched-bench"] as const;
const CMAKE_FLAGS = [
  "-DCMAKE_BUILD_TYPE=Release",
  "-DGGML_NATIVE=ON",
  "-DLLAMA_CURL=OFF",
  "-DLLAMA_OPENSSL=OFF",
  "-DLLAMA_BUILD_TESTS=OFF",
] as const;

export type PeerTool = (typeof TARGETS)[number];

export interface Peers {
  readonly folder: string;
  /** What was built and how, or that the user brought it. */
  readonly origin: string;
  pathOf(tool: PeerTool): string;
}

/** `KVASIR_CACHE_DIR`, or `~/.cache/kvasir`. */
export function cacheFolder(environment: NodeJS.ProcessEnv = process.env): string {
  return environment.KVASIR_CACHE_DIR || join(homedir(), ".cache", "kvasir");
}

/**
 * Finds the tools (`KVASIR_PEERS_DIR`: a folder that holds them; else the cache) or builds them.
 * @param report called with one line per stage
 * @throws CodedError bench_failed when a tool for the build is missing or the build fails
 */
export async function providePeers(
  report: (line: string) => void,
  environment: NodeJS.ProcessEnv = process.env,
): Promise<Peers> {
  const given = environment.KVASIR_PEERS_DIR;
  if (given) {
    const missing = TARGETS.filter((tool) => !existsSync(join(given, tool)));
    if (missing.length > 0)
      throw new CodedError(
        "bench_failed",
        `KVASIR_PEERS_DIR=${given} lacks ${missing.join(", ")}. Name the folder that holds the three programs, or unset it to build them.`,
      );
    return peersIn(given, "brought by KVASIR_PEERS_DIR");
  }
  const configuration = { package: PEER_PACKAGE, flags: CMAKE_FLAGS, vectors: vectorFlags(), machine: process.arch };
  const stampName = fingerprintOf(configuration);
  const parent = join(cacheFolder(environment), "peers");
  const folder = join(parent, stampName);
  const origin = `${PEER_PACKAGE}, ${CMAKE_FLAGS.join(" ")}`;
  if (isComplete(folder)) return peersIn(join(folder, "bin"), origin);
  for (const tool of ["npm", "git", "cmake", "g++"]) requireTool(tool);
  mkdirSync(parent, { recursive: true });
  const workFolder = join(parent, `.${stampName}.${randomBytes(4).toString("hex")}`);
  try {
    await build(workFolder, report);
    writeFileSync(join(workFolder, "stamp.json"), JSON.stringify(configuration, null, 2));
    if (isComplete(folder)) return peersIn(join(folder, "bin"), origin);
    rmSync(folder, { recursive: true, force: true });
    renameSync(workFolder, folder);
  } finally {
    rmSync(workFolder, { recursive: true, force: true });
  }
  return peersIn(join(folder, "bin"), origin);
}

async function build(folder: string, report: (line: string) => void): Promise<void> {
  mkdirSync(folder, { recursive: true });
  const logPath = `${folder}.log`;
  writeFileSync(logPath, "");
  const step = async (what: string, command: string, args: readonly string[], cwd: string) => {
    report(what);
    await runLogged(command, args, cwd, logPath, what);
  };
  const source = join(folder, "llama.cpp");
  const built = join(folder, "build");
  await step(`fetching ${PEER_PACKAGE}`, "npm", ["pack", PEER_PACKAGE, "--silent"], folder);
  const archive = `${PEER_PACKAGE.replace("@", "-")}.tgz`;
  await step("unpacking the source bundle", "tar", ["xzf", archive, BUNDLE_PATH], folder);
  await step("checking out llama.cpp", "git", ["clone", "--quiet", BUNDLE_PATH, source], folder);
  // the programs find their libraries beside themselves after the folder is renamed
  const rpath = ["-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON"];
  await step("configuring", "cmake", ["-S", source, "-B", built, ...CMAKE_FLAGS, ...rpath], folder);
  const jobs = String(availableParallelism());
  await step(
    `compiling with ${jobs} jobs (5 to 20 minutes)`,
    "cmake",
    ["--build", built, "-j", jobs, "--target", ...TARGETS],
    folder,
  );
  renameSync(join(built, "bin"), join(folder, "bin"));
  for (const leftover of [source, built, join(folder, archive), join(folder, "package")])
    rmSync(leftover, { recursive: true, force: true });
  rmSync(logPath, { force: true });
}

function runLogged(command: string, args: readonly string[], cwd: string, logPath: string, what: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = own(spawn(command, args, { cwd, stdio: ["ignore", "pipe", "pipe"] }));
    const append = (chunk: Buffer) => writeFileSync(logPath, chunk, { flag: "a" });
    child.stdout.on("data", append);
    child.stderr.on("data", append);
    child.once("error", (error) =>
      reject(new CodedError("bench_failed", `${what}: ${command} could not be started: ${error.message}`)),
    );
    child.once("close", (code) => {
      if (code === 0) return resolve();
      const tail = readFileSync(logPath, "utf8").slice(-1500);
      reject(new CodedError("bench_failed", `${what} failed: ${command} ended with ${code}. Log: ${logPath}\n${tail}`));
    });
  });
}

function requireTool(tool: string): void {
  try {
    execFileSync(tool, ["--version"], { stdio: "ignore" });
  } catch {
    throw new CodedError(
      "bench_failed",
      `Building the peers needs ${tool}, which is not on the PATH. Install cmake, g++ and git, or point KVASIR_PEERS_DIR to a folder with ${TARGETS.join(", ")}.`,
    );
  }
}

function isComplete(folder: string): boolean {
  return existsSync(join(folder, "stamp.json")) && TARGETS.every((tool) => existsSync(join(folder, "bin", tool)));
}

function peersIn(folder: string, origin: string): Peers {
  return { folder, origin, pathOf: (tool) => join(folder, tool) };
}
