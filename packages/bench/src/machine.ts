/** Where a measurement was taken, so that nobody compares it with one from elsewhere. */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { availableParallelism, cpus, release, totalmem, type } from "node:os";
import { fileURLToPath } from "node:url";

export interface MachineFacts {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryBytes: number;
  readonly system: string;
  readonly node: string;
  /** Widest vector instructions of the CPU, as far as they are known. */
  readonly vectors: string;
}

export interface Revision {
  /** Commit id, or "unknown" outside a git checkout. */
  readonly commit: string;
  /** Uncommitted changes were present. */
  readonly isDirty: boolean;
}

export const repositoryRoot = fileURLToPath(new URL("../../../", import.meta.url));

export function machineFacts(): MachineFacts {
  return {
    cpu: cpus()[0]?.model.trim() ?? "unknown",
    cores: availableParallelism(),
    memoryBytes: totalmem(),
    system: `${type()} ${release().split("-")[0]} ${process.arch}`,
    node: process.version,
    vectors: vectorFlags(),
  };
}

/** The CPU's vector instruction sets: a native build for other ones is another peer. */
export function vectorFlags(): string {
  let text: string;
  try {
    text = readFileSync("/proc/cpuinfo", "utf8");
  } catch {
    // not Linux
    return "unknown";
  }
  const flags = (/^(?:flags|Features)\s*:\s*(.*)$/m.exec(text)?.[1] ?? "").split(" ");
  return (
    flags
      .filter((flag) => /^(avx|fma|f16c|amx|asimd|sve|i8mm|bf16)/.test(flag))
      .sort()
      .join(" ") || "none known"
  );
}

export function revision(): Revision {
  try {
    const git = (...args: string[]) =>
      execFileSync("git", args, { cwd: repositoryRoot, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
    return { commit: git("rev-parse", "--short=12", "HEAD"), isDirty: git("status", "--porcelain") !== "" };
  } catch {
    // no git, or not a checkout
    return { commit: "unknown", isDirty: false };
  }
}

/** SHA-256 (first 12 hex digits) over canonical JSON: keys sorted, so that equal configurations have equal fingerprints. */
export function fingerprintOf(configuration: unknown): string {
  return createHash("sha256").update(canonicalJson(configuration)).digest("hex").slice(0, 12);
}

function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).filter(([, member]) => member !== undefined);
    return `{${entries
      .sort(([x], [y]) => (x < y ? -1 : 1))
      .map(([key, member]) => `${JSON.stringify(key)}:${canonicalJson(member)}`)
      .join(",")}}`;
  }
  return JSON.stringify(value) ?? "null";
}
