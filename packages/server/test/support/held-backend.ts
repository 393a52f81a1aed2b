/** A scripted backend whose decode calls wait for permission: a test decides how far a generation gets. */

import {
  type Backend,
  type BackendFacts,
  type Batch,
  type DecodeOutcome,
  ScriptedBackend,
  type ScriptedBackendOptions,
} from "@kvasir/engine";

export class HeldBackend implements Backend {
  readonly #inner: ScriptedBackend;
  #allowed = Number.POSITIVE_INFINITY;
  #wake: Array<() => void> = [];
  #aborted = false;
  /** Rows of every decode call so far. */
  readonly decodedRows: number[] = [];

  constructor(options: ScriptedBackendOptions) {
    this.#inner = new ScriptedBackend(options);
  }

  /** Lets `calls` more decode calls through, then holds; Infinity lets everything through. */
  allow(calls: number): void {
    this.#allowed = calls;
    for (const wake of this.#wake.splice(0)) wake();
  }

  get facts(): BackendFacts {
    return this.#inner.facts;
  }

  async decode(batch: Batch): Promise<DecodeOutcome> {
    this.#aborted = false;
    while (this.#allowed <= 0 && !this.#aborted) await new Promise<void>((resolve) => this.#wake.push(resolve));
    if (this.#aborted) return "aborted";
    this.#allowed--;
    this.decodedRows.push(batch.rows);
    return this.#inner.decode(batch);
  }

  abort(): void {
    this.#aborted = true;
    for (const wake of this.#wake.splice(0)) wake();
  }

  pieceOf(token: number): Uint8Array {
    return this.#inner.pieceOf(token);
  }

  logitsOf(row: number): Float32Array {
    return this.#inner.logitsOf(row);
  }

  storedTokens(lane: number): number {
    return this.#inner.storedTokens(lane);
  }

  canResume(lane: number, length: number): boolean {
    return this.#inner.canResume(lane, length);
  }

  truncate(lane: number, length: number): void {
    this.#inner.truncate(lane, length);
  }

  close(): Promise<void> {
    return this.#inner.close();
  }
}
