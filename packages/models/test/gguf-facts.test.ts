import { writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { CodedError } from "@kvasir/kit";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type TinyModelName, tinyModelPath } from "../../../fixtures/tiny-models.ts";
import { type GgufFacts, readGgufFacts } from "../src/gguf-facts.ts";
import { kvBytesPerToken, mtpKvBytesPerToken, recurrentStateBytes } from "../src/memory-size.ts";
import { codedErrorOf } from "./support/coded-errors.ts";
import { temporaryFolder } from "./support/folders.ts";
import { type GgufContent, tinyModel, type Value, writeGguf } from "./support/gguf-writer.ts";

const f16 = { kType: "f16", vType: "f16" } as const;

async function factsOf(content: GgufContent): Promise<GgufFacts> {
  const path = join(await temporaryFolder(), "model.gguf");
  await writeFile(path, writeGguf(content));
  return readGgufFacts(path);
}

describe("facts of the tiny models", () => {
  // the bytes are those that libllama allocates for these files (fixtures/README.md)
  it.each<[TinyModelName, Partial<GgufFacts>, number]>([
    ["tiny-qwen3", { architecture: "qwen3", fileType: "F32", trainingContextTokens: 32_768, embeddingSize: 128 }, 2_048],
    ["tiny-qwen35", { architecture: "qwen35", fullAttentionInterval: 4, trainingContextTokens: 32_768 }, 512],
    ["tiny-gemma3", { architecture: "gemma3", slidingWindowTokens: 128, trainingContextTokens: 8_192 }, 1_536],
    ["tiny-deepseek2", { architecture: "deepseek2", experts: { count: 4, used: 2, shared: 1 } }, 2_304],
    ["tiny-draft", { architecture: "qwen3", fileType: "F16" }, 512],
  ])("%s", async (name, expected, kvBytes) => {
    const facts = await readGgufFacts(tinyModelPath(name));
    expect(facts).toMatchObject(expected);
    expect(facts.tokenizer).toMatchObject({
      model: "gpt2",
      tokenCount: 278,
      eos: { id: 265, text: "<|im_end|>" },
      addsBos: false,
    });
    expect(facts.tokenizer.controlTexts).toContain("<|im_start|>");
    expect(facts.tokenizer.controlTexts).not.toContain("<tool_call>");
    expect(facts.chatTemplates.default).toContain("<|im_start|>");
    expect(kvBytesPerToken(facts, f16)).toBe(kvBytes);
  });

  it("counts the layers of the hybrid: recurrent, attention, MTP", async () => {
    const facts = await readGgufFacts(tinyModelPath("tiny-qwen35"));
    expect(facts.layers.map(({ memory }) => memory[0]).join("")).toBe("rrrarrra");
    expect(facts.mtpLayers).toHaveLength(1);
    expect(mtpKvBytesPerToken(facts, f16)).toBe(256);
    expect(recurrentStateBytes(facts)).toBe(215_040);
    expect(recurrentStateBytes(facts, 4)).toBe(5 * 215_040);
  });

  it("counts MLA by its compressed row alone, and quantized rows by whole blocks", async () => {
    const mla = await readGgufFacts(tinyModelPath("tiny-deepseek2"));
    expect(mla.mla).toMatchObject({ keyValueRank: 512, queryRank: 64 });
    const dense = await readGgufFacts(tinyModelPath("tiny-qwen3"));
    expect(kvBytesPerToken(dense, { kType: "q8_0", vType: "f16" })).toBe(4 * ((128 / 32) * 34 + 256));
  });
});

describe("facts by architecture", () => {
  const layersOf = async (architecture: string, extra: Record<string, Value>): Promise<string> => {
    const facts = await factsOf(tinyModel(architecture, extra));
    return facts.layers
      .map(({ memory, windowed }) => (windowed ? "w" : memory === "attention+recurrent" ? "b" : (memory[0] ?? "")))
      .join("");
  };

  it.each<[string, Record<string, Value>, string]>([
    ["gpt-oss", { "gpt-oss.attention.sliding_window": { u32: 128 } }, "wawa"],
    ["cohere2moe", { "cohere2moe.attention.sliding_window": { u32: 128 } }, "awww"],
    ["gemma2", {}, "wawa"],
    ["phi3", { "phi3.attention.sliding_window": { u32: 128 } }, "aaaa"],
    [
      "gemma4",
      {
        "gemma4.attention.sliding_window": { u32: 64 },
        "gemma4.attention.sliding_window_pattern": { bools: [true, true, false, true] },
        "gemma4.attention.shared_kv_layers": { u32: 1 },
      },
      "wwaw",
    ],
    ["jamba", { "jamba.attention.head_count_kv": { i32s: [0, 0, 2, 0] } }, "rrar"],
    [
      "nemotron_h",
      {
        "nemotron_h.attention.head_count_kv": { i32s: [0, 0, 2, 0] },
        "nemotron_h.feed_forward_length": { i32s: [0, 128, 0, 128] },
      },
      "rfaf",
    ],
    ["falcon-h1", {}, "bbbb"],
    ["mamba", {}, "rrrr"],
    ["qwen3next", { "qwen3next.full_attention_interval": { u32: 2 } }, "rara"],
    ["qwen3next", { "qwen3next.attention.recurrent_layers": { bools: [false, true, true, true] } }, "arrr"],
    ["deci", { "deci.attention.head_count_kv": { i32s: [2, 0, 2, 2] } }, "afaa"],
  ])("%s with %o has layers %s", async (architecture, extra, layers) => {
    expect(await layersOf(architecture, extra)).toBe(layers);
  });

  it("leaves out layers that share an earlier layer's KV", async () => {
    const shared = await factsOf(tinyModel("gemma4", { "gemma4.attention.shared_kv_layers": { u32: 3 } }));
    expect(kvBytesPerToken(shared, f16)).toBe(2 * 64 * 2);
  });

  it("adds the indexer's key of sparse attention", async () => {
    const facts = await factsOf(
      tinyModel("deepseek32", {
        "deepseek32.attention.head_count_kv": { u32: 1 },
        "deepseek32.attention.key_length": { u32: 576 },
        "deepseek32.attention.key_length_mla": { u32: 96 },
        "deepseek32.attention.value_length_mla": { u32: 32 },
        "deepseek32.attention.indexer.key_length": { u32: 128 },
      }),
    );
    expect(kvBytesPerToken(facts, f16)).toBe(4 * (576 + 128) * 2);
  });

  it("reads recommended sampling, named templates and special tokens", async () => {
    const facts = await factsOf(
      tinyModel("llama", {
        "general.sampling.temp": { f32: 0.5 },
        "general.sampling.top_k": { u32: 20 },
        "tokenizer.chat_template": { string: "main" },
        "tokenizer.chat_templates": { strings: ["tool_use"] },
        "tokenizer.chat_template.tool_use": { string: "tools" },
      }),
    );
    expect(facts.sampling).toEqual({ temperature: 0.5, topK: 20 });
    expect(facts.chatTemplates.default).toBe("main");
    expect(facts.chatTemplates.named.get("tool_use")).toBe("tools");
    expect(facts.tokenizer.bos).toEqual({ id: 1, text: "<s>" });
    expect(facts.tokenizer.controlTexts).toEqual(["<unk>", "<s>", "</s>"]);
  });
});

describe("files that cannot be loaded", () => {
  const write = async (content: Buffer, name = "model.gguf"): Promise<string> => {
    const path = join(await temporaryFolder(), name);
    await writeFile(path, content);
    return path;
  };

  it.each<[string, Buffer, RegExp]>([
    ["an empty file", Buffer.alloc(0), /it is empty/],
    ["a zip", Buffer.from("PK\x03\x04rest"), /50 4b 03 04 \("PK\?\?"\).*zip archive/],
    ["a web page", Buffer.from("<!DOCTYPE html>"), /"<!DO".*web page/],
    ["an LFS pointer", Buffer.from("version https://git-lfs.github.com/spec/v1"), /LFS pointer/],
    ["three bytes", Buffer.from("GGU"), /47 47 55/],
    ["version 1", writeGguf({ version: 1, metadata: {} }), /GGUF version is 1/],
    ["version 9", writeGguf({ version: 9, metadata: {} }), /GGUF version is 9/],
    ["a big-endian file", writeGguf({ version: 0x03000000, metadata: {} }), /big-endian/],
    ["no architecture", writeGguf({ metadata: {} }), /general.architecture is missing/],
    ["no layers", writeGguf({ metadata: { "general.architecture": { string: "llama" } } }), /llama.block_count is missing/],
    [
      "a wrong type",
      writeGguf(tinyModel("llama", { "llama.block_count": { string: "four" } })),
      /llama.block_count is not a number/,
    ],
    [
      "too few heads",
      writeGguf(tinyModel("llama", { "llama.attention.head_count": { i32s: [1, 1] } })),
      /2 entries for 4 layers/,
    ],
  ])("%s", async (_, content, message) => {
    const error = await codedErrorOf(async () => readGgufFacts(await write(content)));
    expect(error.code).toBe("model_file_invalid");
    expect(error.message).toMatch(message);
  });

  it("names a tensor type that the pinned library does not know", async () => {
    const content = { ...tinyModel("llama"), tensors: [{ name: "new.weight", shape: [32], type: 99, bytes: 32 }] };
    const error = await codedErrorOf(async () => readGgufFacts(await write(writeGguf(content))));
    expect(error.message).toContain("tensor new.weight has type 99");
  });

  it("says how many bytes a truncated file lacks", async () => {
    const whole = writeGguf(tinyModel("llama"));
    const error = await codedErrorOf(async () => readGgufFacts(await write(whole.subarray(0, whole.length - 1_000))));
    expect(error.code).toBe("model_file_truncated");
    expect(error.message).toContain("1,000 bytes are missing");
    expect(error.message).toContain(whole.length.toLocaleString("en-US"));
  });

  it("never takes a truncated file for a whole one", async () => {
    const whole = writeGguf(tinyModel("llama"));
    const path = await write(whole);
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 4, max: whole.length - 1 }), async (length) => {
        await writeFile(path, whole.subarray(0, length));
        expect((await codedErrorOf(() => readGgufFacts(path))).code).toBe("model_file_truncated");
      }),
      { numRuns: 200 },
    );
  });

  it("answers any corruption with a coded error or facts, never a crash", async () => {
    const whole = writeGguf(tinyModel("llama"));
    const path = await write(whole);
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(fc.nat(700), fc.nat(255)), { minLength: 1, maxLength: 6 }), async (changes) => {
        const broken = Buffer.from(whole);
        for (const [position, byte] of changes) broken[position] = byte;
        await writeFile(path, broken);
        try {
          await readGgufFacts(path);
        } catch (error) {
          expect(error).toBeInstanceOf(CodedError);
        }
      }),
      { numRuns: 300 },
    );
  });
});

describe("split models", () => {
  const shard = (number: number, count: number): Buffer =>
    writeGguf({
      ...tinyModel("llama", { "split.count": { u32: count }, "split.no": { u32: number - 1 } }),
      tensors: [{ name: `blk.${number}`, shape: [64, 2], type: 0, bytes: 512 }],
    });
  const name = (number: number): string => `big-0000${number}-of-00003.gguf`;

  it("adds up all shards", async () => {
    const folder = await temporaryFolder();
    for (const number of [1, 2, 3]) await writeFile(join(folder, name(number)), shard(number, 3));
    const facts = await readGgufFacts(join(folder, name(1)));
    expect(facts).toMatchObject({ shardCount: 3, parameterCount: 3 * 128, tensorBytes: 3 * 512 });
    expect(facts.fileBytes).toBe([1, 2, 3].reduce((total, number) => total + shard(number, 3).length, 0));
  });

  it("names every missing shard", async () => {
    const folder = await temporaryFolder();
    await writeFile(join(folder, name(1)), shard(1, 3));
    const error = await codedErrorOf(() => readGgufFacts(join(folder, name(1))));
    expect(error.code).toBe("model_file_missing");
    expect(error.message).toContain(`${name(2)}, ${name(3)}`);
  });

  it("asks for the first shard when another is passed", async () => {
    const error = await codedErrorOf(() => readGgufFacts(`/models/${name(2)}`));
    expect(error.code).toBe("model_reference_invalid");
    expect(error.message).toContain(basename(name(1)));
  });

  it("notices a renamed shard", async () => {
    const path = join(await temporaryFolder(), "renamed.gguf");
    await writeFile(path, shard(1, 3));
    expect((await codedErrorOf(() => readGgufFacts(path))).message).toMatch(/shard 1 of 3, but its name says 1/);
  });

  it("says that a file is not there", async () => {
    expect((await codedErrorOf(() => readGgufFacts("/nowhere/model.gguf"))).message).toBe(
      "there is no model file /nowhere/model.gguf",
    );
  });
});
