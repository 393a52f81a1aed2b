/** Writes GGUF files with any header, so that tests can have what no real model has. */

export type Value =
  | { readonly u32: number }
  | { readonly f32: number }
  | { readonly bool: boolean }
  | { readonly string: string }
  | { readonly strings: readonly string[] }
  | { readonly i32s: readonly number[] }
  | { readonly bools: readonly boolean[] };

export interface Tensor {
  readonly name: string;
  readonly shape: readonly number[];
  readonly type: number;
  /** Bytes of weights that are written. */
  readonly bytes: number;
}

export interface GgufContent {
  readonly version?: number;
  readonly metadata: Readonly<Record<string, Value>>;
  readonly tensors?: readonly Tensor[];
}

const ALIGNMENT = 32;

export function writeGguf({ version = 3, metadata, tensors = [] }: GgufContent): Buffer {
  const parts: Buffer[] = [Buffer.from("GGUF"), u32(version), u64(tensors.length), u64(Object.keys(metadata).length)];
  for (const [key, value] of Object.entries(metadata)) parts.push(string(key), encode(value));
  let dataOffset = 0;
  const data: Buffer[] = [];
  for (const { name, shape, type, bytes } of tensors) {
    parts.push(string(name), u32(shape.length), ...shape.map(u64), u32(type), u64(dataOffset));
    const padded = Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
    data.push(Buffer.alloc(padded, 7));
    dataOffset += padded;
  }
  const header = Buffer.concat(parts);
  if (tensors.length === 0) return header;
  return Buffer.concat([header, Buffer.alloc((ALIGNMENT - (header.length % ALIGNMENT)) % ALIGNMENT), ...data]);
}

/** A complete tiny header: one tensor, a vocabulary of six tokens, whatever else is given. */
export function tinyModel(architecture: string, extra: Readonly<Record<string, Value>> = {}): GgufContent {
  const key = (name: string): string => `${architecture}.${name}`;
  return {
    metadata: {
      "general.architecture": { string: architecture },
      "general.file_type": { u32: 0 },
      [key("block_count")]: { u32: 4 },
      [key("context_length")]: { u32: 1024 },
      [key("embedding_length")]: { u32: 64 },
      [key("attention.head_count")]: { u32: 4 },
      "tokenizer.ggml.model": { string: "gpt2" },
      "tokenizer.ggml.tokens": { strings: ["<unk>", "<s>", "</s>", "a", "b", "<think>"] },
      "tokenizer.ggml.token_type": { i32s: [2, 3, 3, 1, 1, 4] },
      "tokenizer.ggml.merges": { strings: ["a b", "b a"] },
      "tokenizer.ggml.bos_token_id": { u32: 1 },
      "tokenizer.ggml.eos_token_id": { u32: 2 },
      ...extra,
    },
    tensors: [{ name: "token_embd.weight", shape: [64, 6], type: 0, bytes: 64 * 6 * 4 }],
  };
}

function encode(value: Value): Buffer {
  if ("u32" in value) return Buffer.concat([u32(4), u32(value.u32)]);
  if ("f32" in value) {
    const bytes = Buffer.alloc(4);
    bytes.writeFloatLE(value.f32);
    return Buffer.concat([u32(6), bytes]);
  }
  if ("bool" in value) return Buffer.concat([u32(7), Buffer.from([value.bool ? 1 : 0])]);
  if ("string" in value) return Buffer.concat([u32(8), string(value.string)]);
  if ("strings" in value) return Buffer.concat([u32(9), u32(8), u64(value.strings.length), ...value.strings.map(string)]);
  if ("bools" in value) return Buffer.concat([u32(9), u32(7), u64(value.bools.length), Buffer.from(value.bools.map(Number))]);
  const bytes = Buffer.alloc(4 * value.i32s.length);
  for (const [index, number] of value.i32s.entries()) bytes.writeInt32LE(number, index * 4);
  return Buffer.concat([u32(9), u32(5), u64(value.i32s.length), bytes]);
}

function string(text: string): Buffer {
  const bytes = Buffer.from(text);
  return Buffer.concat([u64(bytes.length), bytes]);
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}
