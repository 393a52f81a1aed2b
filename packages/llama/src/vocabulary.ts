/** A model's tokens: their bytes, and which of them mean something. Reads each piece once. */

import { CodedError } from "@kvasir/kit";
import type { LlamaModel } from "./model.ts";
import { constants } from "./structs.ts";

const noBytes = new Uint8Array(0);

export class Vocabulary {
  readonly size: number;
  readonly #model: LlamaModel;
  readonly #pieces: Array<Uint8Array | undefined> = [];
  readonly #specialPieces: Array<Uint8Array | undefined> = [];
  #room = new Uint8Array(128);

  constructor(model: LlamaModel) {
    this.#model = model;
    this.size = model.library.native.llama_vocab_n_tokens(model.vocab);
  }

  /**
   * Text bytes of one token. Control tokens are empty unless `special` asks for their text.
   * @throws CodedError invalid_value for an id outside the vocabulary
   */
  pieceOf(token: number, special: boolean): Uint8Array {
    const pieces = special ? this.#specialPieces : this.#pieces;
    const known = pieces[token];
    if (known !== undefined) return known;
    // libllama would end the process here
    if (!Number.isInteger(token) || token < 0 || token >= this.size) {
      throw new CodedError(
        "invalid_value",
        `token ${token} is not in the vocabulary of ${this.size} tokens (0 to ${this.size - 1}).`,
      );
    }
    const piece = this.#read(token, special);
    pieces[token] = piece;
    return piece;
  }

  /** Tokens that end a generation. */
  endTokens(): number[] {
    const { native } = this.#model.library;
    return this.#tokensWhere((token) => native.llama_vocab_is_eog(this.#model.vocab, token));
  }

  /** Texts that read as control tokens: of control and unknown tokens, and of whatever ends a generation. */
  controlTexts(): string[] {
    const { native } = this.#model.library;
    const mask = constants.LLAMA_TOKEN_ATTR_CONTROL | constants.LLAMA_TOKEN_ATTR_UNKNOWN;
    const tokens = this.#tokensWhere(
      (token) =>
        (native.llama_vocab_get_attr(this.#model.vocab, token) & mask) !== 0 ||
        native.llama_vocab_is_eog(this.#model.vocab, token),
    );
    const texts = tokens.map((token) => Buffer.from(this.pieceOf(token, true)).toString("utf8"));
    return [...new Set(texts)].filter((text) => text !== "");
  }

  /** The token that the model wants in front of every prompt, or null. */
  get bosToken(): number | null {
    const { native } = this.#model.library;
    return native.llama_vocab_get_add_bos(this.#model.vocab) ? tokenOrNull(native.llama_vocab_bos(this.#model.vocab)) : null;
  }

  get eosToken(): number | null {
    return tokenOrNull(this.#model.library.native.llama_vocab_eos(this.#model.vocab));
  }

  #read(token: number, special: boolean): Uint8Array {
    const { native } = this.#model.library;
    const read = () => native.llama_token_to_piece(this.#model.vocab, token, this.#room, this.#room.byteLength, 0, special);
    let length = read();
    if (length < 0) {
      this.#room = new Uint8Array(-length);
      length = read();
    }
    return length <= 0 ? noBytes : this.#room.slice(0, length);
  }

  #tokensWhere(holds: (token: number) => boolean): number[] {
    const tokens: number[] = [];
    for (let token = 0; token < this.size; token++) if (holds(token)) tokens.push(token);
    return tokens;
  }
}

function tokenOrNull(token: number): number | null {
  return token === constants.LLAMA_TOKEN_NULL ? null : token;
}
