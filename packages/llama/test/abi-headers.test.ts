import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { expectedLayout } from "../src/abi-layout.ts";

const headers = process.env["LLAMA_CPP_HEADERS"];
const compiler = process.env["CC"] ?? "cc";

test.skipIf(whyNot() !== null)(
  `the release's headers give the layout of the repository${whyNot() === null ? "" : ` (skipped: ${whyNot()})`}`,
  () => {
    const directory = mkdtempSync(join(tmpdir(), "kvasir-abi-"));
    try {
      const program = join(directory, "abi");
      const source = fileURLToPath(new URL("../abi/abi.c", import.meta.url));
      execFileSync(compiler, [
        "-I",
        join(headers ?? "", "include"),
        "-I",
        join(headers ?? "", "ggml/include"),
        source,
        "-o",
        program,
      ]);
      expect(JSON.parse(execFileSync(program, { encoding: "utf8" }))).toEqual(expectedLayout);
    } finally {
      rmSync(directory, { recursive: true });
    }
  },
);

function whyNot(): string | null {
  if (headers === undefined) return "LLAMA_CPP_HEADERS does not name a llama.cpp v0.5.0 source tree";
  if (!existsSync(join(headers, "include/llama.h"))) return `${headers} has no include/llama.h`;
  return spawnSync(compiler, ["--version"]).status === 0 ? null : `there is no C compiler "${compiler}"`;
}
