/** The Markdown of one engine benchmark: where, with which flags, the tables, how each figure came about. */

import { formatBytes } from "@kvasir/kit";
import { type Comparison, comparisonTable } from "../comparison.ts";
import type { MachineFacts, Revision } from "../machine.ts";
import { renderMarkdown, type TextTable } from "../text-table.ts";
import type { PartResult } from "./bench-context.ts";

export interface EngineRun {
  readonly at: string;
  readonly command: string;
  readonly machine: MachineFacts;
  readonly revision: Revision;
  readonly fingerprint: string;
  readonly peersOrigin: string;
  readonly commandLines: readonly string[];
  readonly warnings: readonly string[];
  readonly parts: readonly PartResult[];
}

export function engineMarkdown(run: EngineRun): string {
  const comparisons = run.parts.flatMap((part) => part.comparisons);
  const warnings = [...run.warnings, ...run.parts.flatMap((part) => part.warnings)];
  return [
    `Measured ${run.at.slice(0, 10)} with \`${run.command}\`, revision ${run.revision.commit}${run.revision.isDirty ? " with uncommitted changes" : ""}, configuration ${run.fingerprint}.`,
    describeMachine(run.machine),
    ...(warnings.length === 0 ? [] : [`**Read with care:**\n\n${bullets(warnings)}`]),
    ...(comparisons.length === 0 ? [] : [renderMarkdown(comparisonTable(comparisons))]),
    ...run.parts.flatMap((part) => part.tables.map(({ title, table }) => `${title}:\n\n${renderMarkdown(table)}`)),
    `How it was measured:\n\n${bullets([...generalMethod, ...run.parts.flatMap((part) => part.method)])}`,
    `Peers: ${run.peersOrigin}. Command lines, folders left out:\n\n\`\`\`\n${run.commandLines.map(withoutFolders).join("\n")}\n\`\`\``,
  ].join("\n\n");
}

const generalMethod = [
  "Figures are medians with (lowest–highest) over n rounds. Ratio = Kvasir ÷ peer inside each round, then the median of those ratios and their range. Contenders take turns in every round and the starter moves on; never two compute at once.",
];

export function describeMachine(machine: MachineFacts): string {
  return `${machine.cpu}, ${machine.cores} cores (${vectorName(machine.vectors)}), ${formatBytes(machine.memoryBytes)}, ${machine.system}, Node ${machine.node}.`;
}

function vectorName(flags: string): string {
  if (flags.includes("avx512")) return "AVX-512";
  if (flags.includes("avx2")) return "AVX2";
  return flags.includes("asimd") ? "NEON" : flags;
}

/** `/home/me/models/tiny.gguf` → `tiny.gguf`: a report goes into a document, and folders say nothing there. */
export function withoutFolders(commandLine: string): string {
  return commandLine.replace(/(^|\s)(?:[A-Za-z]:)?[/\\]\S*[/\\](?=[^\s/\\]+)/g, "$1");
}

function bullets(lines: readonly string[]): string {
  return lines.map((line) => `- ${line}`).join("\n");
}

/** All tables of a run, for a terminal. */
export function engineTables(parts: readonly PartResult[]): TextTable[] {
  const comparisons: Comparison[] = parts.flatMap((part) => [...part.comparisons]);
  return [
    ...(comparisons.length > 0 ? [comparisonTable(comparisons)] : []),
    ...parts.flatMap((part) => part.tables.map(({ table }) => table)),
  ];
}
