/** Where a run's figures go: one JSON file with everything, one Markdown file with the tables. The folder is git-ignored. */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const resultsFolder = fileURLToPath(new URL("../results/", import.meta.url));

/** `engine-2026-12-01T10-20-30` */
export function runName(kind: string, at: Date): string {
  return `${kind}-${at.toISOString().slice(0, 19).replaceAll(":", "-")}`;
}

/** @returns the paths written */
export function writeResults(name: string, record: unknown, markdown: string, folder = resultsFolder): string[] {
  mkdirSync(folder, { recursive: true });
  const paths = [join(folder, `${name}.json`), join(folder, `${name}.md`)] as const;
  writeFileSync(paths[0], `${JSON.stringify(record, null, 2)}\n`);
  writeFileSync(paths[1], `${markdown}\n`);
  return [...paths];
}
