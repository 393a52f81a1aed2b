/** One table, two renderings: Markdown for documents, aligned columns for a terminal. Cells are already text. */

import { invariant } from "@kvasir/kit";

export interface TextTable {
  readonly columns: readonly string[];
  readonly rows: ReadonlyArray<readonly string[]>;
}

/** GitHub-flavoured Markdown; a `|` in a cell is escaped. Columns after the first are right-aligned. */
export function renderMarkdown(table: TextTable): string {
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell) => cell.replaceAll("|", "\\|").replaceAll("\n", " ")).join(" | ")} |`;
  checkWidth(table);
  const rule = table.columns.map((_, column) => (column === 0 ? "---" : "---:"));
  return [line(table.columns), `|${rule.join("|")}|`, ...table.rows.map(line)].join("\n");
}

/** Columns padded to their widest cell, two spaces apart. */
export function renderPlain(table: TextTable): string {
  checkWidth(table);
  const lines = [table.columns, ...table.rows];
  const widths = table.columns.map((_, column) => Math.max(...lines.map((cells) => (cells[column] ?? "").length)));
  return lines
    .map((cells) =>
      cells
        .map((cell, column) => (column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0)))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

function checkWidth(table: TextTable): void {
  for (const row of table.rows) {
    invariant(
      row.length === table.columns.length,
      `a row of ${row.length} cells in a table of ${table.columns.length} columns`,
    );
  }
}

/** `123.456` → `123`, `12.345` → `12.3`, `0.98765` → `0.988`; NaN → `–`. Three significant digits at most. */
export function formatFigure(value: number): string {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3;
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** `1.02 (0.99–1.05)`: median and range. */
export function formatSpread(spread: { readonly median: number; readonly min: number; readonly max: number }): string {
  return `${formatFigure(spread.median)} (${formatFigure(spread.min)}–${formatFigure(spread.max)})`;
}
