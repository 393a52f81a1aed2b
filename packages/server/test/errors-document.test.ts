import { readFileSync } from "node:fs";
import { errorCatalogue } from "@kvasir/kit";
import { describe, expect, it } from "vitest";

const document = readFileSync(new URL("../../../docs/errors.md", import.meta.url), "utf8");
/** Rows of the tables: code → status cell. */
const rows = new Map(
  Array.from(document.matchAll(/^\| `([a-z0-9_]+)` \| ([^|]+) \|/gm), ([, code = "", status = ""]) => [code, status.trim()]),
);

describe("docs/errors.md", () => {
  it("has every error of the catalogue, and no other", () => {
    expect([...rows.keys()].sort()).toEqual(Object.keys(errorCatalogue).sort());
  });

  it.each(Object.entries(errorCatalogue))("tells the status of %s", (code, { status }) => {
    expect(rows.get(code)).toBe(status === null ? "—" : String(status));
  });
});
