/**
 * The port that a set of kernels implements: `llama` (libllama) and `ScriptedBackend` (deterministic, for tests).
 *
 * Who calls: the engine's step loop alone, one call at a time. A backend never schedules, samples or remembers tokens; it
 * holds KV cells. A lane is one sequence stream with room for `laneTokens`; positions in a lane are always 0..length-1
 * without gaps.
 */

import type { Batch } from "./batch.ts";

export interface BackendFacts {
  /** What runs, for people: model description and device. */
  readonly description: string;
  readonly vocabSize: number;
  readonly laneCount: number;
  /** Room of one lane in tokens: prompt and output together. */
  readonly laneTokens: number;
  /** Most rows that one `decode` takes. */
  readonly batchTokens: number;
  /** Most rows of one `decode` that may ask for logits. */
  readonly outputRows: number;
  /** Bytes of KV that one token occupies in a lane. 0 when the model keeps none. */
  readonly kvBytesPerToken: number;
  /** Bytes that the KV of all lanes occupies, allocated at the start. */
  readonly kvBytes: number;
  /** Why prefixes can be kept in lanes only; null when they are cut into pages. */
  readonly pageRefusal: string | null;
  /** Whether a lane can always be cut by the tokens of the last step: what speculation needs. False with recurrent layers. */
  readonly canRollBack: boolean;
  readonly threads: number;
  /** Tokens that end a generation (EOS, EOT and the like). */
  readonly endTokens: readonly number[];
}

export type DecodeOutcome =
  /** All rows are in the lanes; logits of the asked rows can be read until the next `decode`. */
  | "done"
  /** A lane had no room; nothing changed. The engine's reservation makes this impossible, so it is treated as a bug. */
  | "no-room"
  /** `abort` ended the call. Some rows may have been stored: ask `storedTokens`. */
  | "aborted";

export interface Backend {
  readonly facts: BackendFacts;

  /** Text bytes of one token, also for a part of a UTF-8 character. Control tokens give an empty array. */
  pieceOf(token: number): Uint8Array;

  /**
   * Computes every row of the batch. Rows of one lane are contiguous and in position order, the first at the lane's current
   * length. Short steps may return at once, long ones a promise, so that the event loop stays free.
   * @throws CodedError decode_failed when the batch is refused or the device fails
   */
  decode(batch: Batch): DecodeOutcome | Promise<DecodeOutcome>;

  /** Logits of a row of the last batch that asked for them: a view of `vocabSize` floats, valid until the next `decode`. */
  logitsOf(row: number): Float32Array;

  /** Tokens that the lane holds. */
  storedTokens(lane: number): number;

  /**
   * Whether the lane can be cut to its first `length` tokens and continued there. Always true for 0 and for the lane's own
   * length. False where the model's memory cannot go back: recurrent layers, or a window that has already moved on.
   */
  canResume(lane: number, length: number): boolean;

  /** Cuts the lane to its first `length` tokens. Only after `canResume` said true. */
  truncate(lane: number, length: number): void;

  /** Ends a running `decode` soon, from any point of the event loop. Nothing happens when none runs. */
  abort(): void;

  /** Frees everything, in reverse order of opening. */
  close(): Promise<void>;
}

/** The model's vocabulary, loaded without weights. Lives in the server process; safe to call while the engine runs. */
export interface Tokenizer {
  readonly vocabSize: number;
  /** Beginning-of-sequence token that the model wants in front of every prompt, or null. */
  readonly bosToken: number | null;
  readonly eosToken: number | null;
  /** Texts of all control tokens: what must not arise from a user's text. */
  readonly controlTexts: readonly string[];

  /**
   * Token ids of `text`. Long texts are tokenized off the event loop.
   * @param options.addSpecial put BOS in front where the model wants it
   * @param options.parseSpecial read control token texts as control tokens
   */
  tokenize(text: string, options: { addSpecial: boolean; parseSpecial: boolean }): Promise<Int32Array>;

  /** Text bytes of one token. `special` shows control tokens as their text. */
  pieceOf(token: number, options?: { special?: boolean }): Uint8Array;

  close(): void;
}
