/**
 * The vocabulary-only tokenizer of the server process. libllama's tokenizer may be called from several threads at once, also
 * while an engine in another process runs.
 */

import type { Tokenizer } from "@kvasir/engine";
import { invariant } from "@kvasir/kit";
import koffi from "koffi";
import { type LibraryOptions, openLibrary } from "./library.ts";
import { type LlamaModel, loadModel } from "./model.ts";
import { callAsync } from "./native-functions.ts";
import { Vocabulary } from "./vocabulary.ts";

/** Texts up to here are tokenized at once: about 4,000 tokens, some 5 ms. */
const synchronousBytes = 16 * 1024;

/**
 * @throws CodedError library_missing, library_mismatch or one of the model_file errors
 */
export async function openTokenizer(modelPath: string, options: LibraryOptions = {}): Promise<Tokenizer> {
  const model = await loadModel(openLibrary(options), { modelPath, vocabOnly: true, gpuLayers: 0 });
  return new LlamaTokenizer(model);
}

class LlamaTokenizer implements Tokenizer {
  readonly vocabSize: number;
  readonly bosToken: number | null;
  readonly eosToken: number | null;
  readonly controlTexts: readonly string[];
  readonly #model: LlamaModel;
  readonly #vocabulary: Vocabulary;
  #callsInFlight = 0;
  #closed = false;

  constructor(model: LlamaModel) {
    this.#model = model;
    this.#vocabulary = new Vocabulary(model);
    this.vocabSize = this.#vocabulary.size;
    this.bosToken = this.#vocabulary.bosToken;
    this.eosToken = this.#vocabulary.eosToken;
    this.controlTexts = this.#vocabulary.controlTexts();
  }

  /** A lone surrogate becomes U+FFFD, as in every UTF-8 encoder; a NUL is a character like others. */
  async tokenize(text: string, options: { addSpecial: boolean; parseSpecial: boolean }): Promise<Int32Array> {
    invariant(!this.#closed, "tokenizer used after it was closed");
    this.#callsInFlight++;
    try {
      const tokens = await this.#tokenizeBytes(Buffer.from(text, "utf8"), options.parseSpecial);
      return options.addSpecial && this.bosToken !== null ? withFirst(this.bosToken, tokens) : tokens;
    } finally {
      this.#callsInFlight--;
      if (this.#closed && this.#callsInFlight === 0) this.#model.close();
    }
  }

  pieceOf(token: number, options: { special?: boolean } = {}): Uint8Array {
    invariant(!this.#closed, "tokenizer used after it was closed");
    return this.#vocabulary.pieceOf(token, options.special ?? false);
  }

  /** The vocabulary is freed when the last call that still runs has ended. */
  close(): void {
    this.#closed = true;
    if (this.#callsInFlight === 0) this.#model.close();
  }

  /** libllama is never asked to add special tokens: besides BOS it would add an end token where a model wants one. */
  async #tokenizeBytes(bytes: Buffer, parseSpecial: boolean): Promise<Int32Array> {
    let room = new Int32Array(firstRoom(bytes.byteLength));
    for (;;) {
      const count = await this.#call(bytes, room, parseSpecial);
      if (count >= 0) return room.slice(0, count);
      invariant(-count > room.length, `the tokenizer asks for room for ${-count} tokens and had ${room.length}`);
      room = new Int32Array(-count);
    }
  }

  async #call(bytes: Buffer, room: Int32Array, parseSpecial: boolean): Promise<number> {
    const { native } = this.#model.library;
    const vocab = this.#model.vocab;
    if (bytes.byteLength <= synchronousBytes) {
      return native.llama_tokenize(vocab, bytes, bytes.byteLength, room, room.length, false, parseSpecial);
    }
    // both arrays are large, so their memory is outside the JavaScript heap and does not move; the loop above keeps them alive
    const [from, to] = [koffi.address(bytes), koffi.address(room)];
    return await callAsync(native.llama_tokenize, vocab, from, bytes.byteLength, to, room.length, false, parseSpecial);
  }
}

/** Every token covers a byte or more, save a few that a tokenizer adds; text rarely needs half as many. */
function firstRoom(byteLength: number): number {
  return byteLength <= synchronousBytes ? byteLength + 16 : byteLength >> 1;
}

function withFirst(token: number, tokens: Int32Array): Int32Array {
  const all = new Int32Array(tokens.length + 1);
  all[0] = token;
  all.set(tokens, 1);
  return all;
}
