import { homedir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { catalogue, DEFAULT_MODEL } from "../src/catalogue.ts";
import { quantOf, selectModel } from "../src/model-files.ts";
import { formatHubReference, parseModelReference } from "../src/model-reference.ts";
import { codedErrorOf } from "./support/coded-errors.ts";

describe("model references", () => {
  it.each([
    ["hf:owner/repo", { repo: "owner/repo", revision: "main", selector: null }],
    ["hf:owner/repo:Q4_K_M", { repo: "owner/repo", revision: "main", selector: "Q4_K_M" }],
    ["hf:owner/re.po-2@v1.0", { repo: "owner/re.po-2", revision: "v1.0", selector: null }],
    ["hf:owner/repo@refs/pr/3:sub/m-Q8_0.gguf", { repo: "owner/repo", revision: "refs/pr/3", selector: "sub/m-Q8_0.gguf" }],
  ])("reads %s and writes it back", (text, expected) => {
    const reference = parseModelReference(text);
    expect(reference).toEqual({ kind: "hub", ...expected });
    if (reference.kind === "hub") expect(formatHubReference(reference)).toBe(text);
  });

  it("takes paths as they are, with ~ for the home folder", () => {
    expect(parseModelReference("/models/a.gguf")).toEqual({ kind: "file", path: "/models/a.gguf" });
    expect(parseModelReference("a.GGUF")).toEqual({ kind: "file", path: "a.GGUF" });
    expect(parseModelReference("~/a.gguf")).toEqual({ kind: "file", path: join(homedir(), "a.gguf") });
    expect(parseModelReference("./blobs/sha256-00")).toEqual({ kind: "file", path: "./blobs/sha256-00" });
  });

  it("finds catalogue names in any case", () => {
    expect(parseModelReference("SmolLM2-135M-Instruct")).toMatchObject({ kind: "catalogue", entry: { name: DEFAULT_MODEL } });
  });

  it.each([
    ["gpt5", "smollm2-135m-instruct, qwen2.5-coder-7b"],
    ["owner/repo:Q4_K_M", "write hf:owner/repo:Q4_K_M"],
    ["hf:repo", "hf:owner/repo[@revision][:file.gguf or quant]"],
    ["https://hub/owner/repo/m.gguf", "hf:owner/repo:file.gguf"],
    ["", "catalogue"],
  ])("says what %j should be", async (text, hint) => {
    const error = await codedErrorOf(() => parseModelReference(text));
    expect(error.code).toBe("model_reference_invalid");
    expect(error.param).toBe("model");
    expect(error.message).toContain(hint);
  });
});

describe("the catalogue", () => {
  it("has well-formed entries with pinned files", () => {
    expect(new Set(catalogue.map(({ name }) => name)).size).toBe(catalogue.length);
    for (const entry of catalogue) {
      expect(entry.name).toMatch(/^[a-z0-9.-]+$/);
      expect(entry.sha256).toMatch(/^[0-9a-f]{64}$/);
      expect(entry.bytes).toBeGreaterThan(90_000_000);
      for (const source of entry.sources) {
        if (source.kind === "hub")
          expect(source).toMatchObject({ revision: expect.stringMatching(/^[0-9a-f]{40}$/), file: entry.file });
        else expect(source.member.split("/").at(-1)).toBe(entry.file);
      }
    }
  });

  it("names the default model exactly", () => {
    expect(catalogue[0]).toMatchObject({
      name: DEFAULT_MODEL,
      bytes: 98_362_432,
      sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    });
  });
});

describe("choosing a file of a repository", () => {
  const unsloth = [
    "README.md",
    "mmproj-F16.gguf",
    "imatrix_unsloth.gguf",
    "M-Q4_K_M.gguf",
    "M-UD-Q4_K_XL.gguf",
    "M-Q8_0.gguf",
    "BF16/M-BF16-00001-of-00002.gguf",
    "BF16/M-BF16-00002-of-00002.gguf",
  ];

  it.each<[string | null, string]>([
    [null, "M-Q4_K_M.gguf"],
    ["q8_0", "M-Q8_0.gguf"],
    ["Q4_K_XL", "M-UD-Q4_K_XL.gguf"],
    ["ud-q4_k_xl", "M-UD-Q4_K_XL.gguf"],
    ["bf16", "BF16/M-BF16-00001-of-00002.gguf"],
    ["m-q8_0.gguf", "M-Q8_0.gguf"],
    ["BF16/M-BF16-00002-of-00002.gguf", "BF16/M-BF16-00001-of-00002.gguf"],
    ["M-BF16-00001-of-00002.gguf", "BF16/M-BF16-00001-of-00002.gguf"],
  ])("%s is %s", (selector, file) => {
    expect(selectModel("o/r", unsloth, selector)).toBe(file);
  });

  it("takes the only model whatever its quantization", () => {
    expect(selectModel("o/r", ["mmproj.gguf", "m-IQ2_XXS.gguf"], null)).toBe("m-IQ2_XXS.gguf");
  });

  it("prefers the exact label over the one behind UD-", () => {
    expect(selectModel("o/r", ["M-UD-Q4_K_M.gguf", "M-Q4_K_M.gguf"], "q4_k_m")).toBe("M-Q4_K_M.gguf");
    expect(selectModel("o/r", ["M-UD-Q4_K_M.gguf", "M-Q8_0.gguf"], "q4_k_m")).toBe("M-UD-Q4_K_M.gguf");
  });

  it.each<[string, readonly string[], string | null, string]>([
    [
      "lists the candidates of an ambiguous quantization",
      ["a-Q4_0.gguf", "b-Q4_0.gguf", "b-Q8_0.gguf"],
      "Q4_0",
      "It has: a-Q4_0.gguf, b-Q4_0.gguf",
    ],
    ["does not take a part of a label", ["M-Q4_K_M.gguf"], "Q4_K", "It has: M-Q4_K_M.gguf"],
    ["asks for a name among several", ["M-Q5_0.gguf", "M-Q8_0.gguf"], null, "several models; name one"],
    ["says when no file has the name", ["M-Q5_0.gguf"], "N.gguf", 'no file "N.gguf"'],
    ["says when there is no model", ["model.safetensors", "mmproj-F16.gguf"], null, "holds no .gguf model"],
  ])("%s", async (_, files, selector, message) => {
    const error = await codedErrorOf(() => selectModel("o/r", files, selector));
    expect(error.code).toBe("model_reference_invalid");
    expect(error.message).toContain(message);
  });

  it.each([
    ["qwen2.5-coder-7b-instruct-q4_k_m.gguf", "Q4_K_M"],
    ["SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"],
    ["gpt-oss-20b-mxfp4.gguf", "MXFP4"],
    ["Q2_K_L/M-Q2_K_L-00001-of-00009.gguf", "Q2_K_L"],
    ["model.gguf", null],
  ])("reads the label of %s", (path, label) => {
    expect(quantOf(path)).toBe(label);
  });
});
