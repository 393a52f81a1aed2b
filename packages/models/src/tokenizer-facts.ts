/** The vocabulary's side of a model: special tokens, control texts, chat templates. */

import type { GgufMetadata } from "./gguf-metadata.ts";
import type { StringTable } from "./gguf-reader.ts";

export interface SpecialToken {
  readonly id: number;
  readonly text: string;
}

export interface TokenizerFacts {
  /** `tokenizer.ggml.model`: gpt2 (BPE), llama (SentencePiece), … */
  readonly model: string;
  /** `tokenizer.ggml.pre`: how BPE splits words; null where it does not apply. */
  readonly preTokenizer: string | null;
  readonly tokenCount: number;
  readonly bos: SpecialToken | null;
  readonly eos: SpecialToken | null;
  readonly eot: SpecialToken | null;
  readonly padding: SpecialToken | null;
  /** The model wants BOS in front of a prompt. From the file, else libllama's default for this kind of tokenizer. */
  readonly addsBos: boolean;
  readonly addsEos: boolean;
  /**
   * Texts of the tokens that the file declares as control or unknown tokens: what must not arise from a user's text. libllama
   * may treat a few more, or fewer, as control tokens; whoever renders prompts takes both lists.
   */
  readonly controlTexts: readonly string[];
}

export interface ChatTemplateSources {
  /** Jinja source, or null for a model that has none. */
  readonly default: string | null;
  /** Further templates by name, for example `tool_use`. */
  readonly named: ReadonlyMap<string, string>;
}

const UNKNOWN_TOKEN = 2;
const CONTROL_TOKEN = 3;

/** BPE vocabularies that get BOS although their file does not say so. */
const bosPreTokenizers: ReadonlySet<string> = new Set([
  "llama3",
  "llama-v3",
  "llama-bpe",
  "falcon3",
  "falcon-h1",
  "pixtral",
  "midm-2.0",
  "lfm2",
  "jina-v5-nano",
  "tekken",
  "chameleon",
]);

export function readTokenizer(metadata: GgufMetadata): TokenizerFacts {
  const tokens = metadata.strings("tokenizer.ggml.tokens");
  const model = metadata.string("tokenizer.ggml.model") ?? "none";
  const preTokenizer = metadata.string("tokenizer.ggml.pre") ?? null;
  const special = (name: string): SpecialToken | null => {
    const id = metadata.number(`tokenizer.ggml.${name}_token_id`);
    const text = id === undefined ? undefined : tokens?.at(id);
    return id === undefined || text === undefined ? null : { id, text };
  };
  const defaultBos = model === "llama" || model === "bert" || (preTokenizer !== null && bosPreTokenizers.has(preTokenizer));
  return {
    model,
    preTokenizer,
    tokenCount: tokens?.length ?? 0,
    bos: special("bos"),
    eos: special("eos"),
    eot: special("eot"),
    padding: special("padding"),
    addsBos: preTokenizer === "gemma4" || (metadata.boolean("tokenizer.ggml.add_bos_token") ?? defaultBos),
    addsEos: metadata.boolean("tokenizer.ggml.add_eos_token") ?? model === "t5",
    controlTexts: readControlTexts(tokens, metadata.numbers("tokenizer.ggml.token_type")),
  };
}

function readControlTexts(tokens: StringTable | undefined, types: readonly number[] | undefined): string[] {
  const texts: string[] = [];
  for (const [id, type] of (types ?? []).entries()) {
    if (type !== CONTROL_TOKEN && type !== UNKNOWN_TOKEN) continue;
    const text = tokens?.at(id);
    if (text) texts.push(text);
  }
  return texts;
}

/** Keys: `tokenizer.chat_template`, and `tokenizer.chat_template.NAME` for each name in `tokenizer.chat_templates`. */
export function readChatTemplates(metadata: GgufMetadata): ChatTemplateSources {
  const named = new Map<string, string>();
  for (const name of metadata.strings("tokenizer.chat_templates")?.toArray() ?? []) {
    const source = metadata.string(`tokenizer.chat_template.${name}`);
    if (source !== undefined) named.set(name, source);
  }
  return { default: metadata.string("tokenizer.chat_template") ?? named.get("default") ?? null, named };
}
