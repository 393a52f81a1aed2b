/**
 * The engine: admission, one step at a time, publication. It owns the queue, the lanes and every running request; nobody else
 * calls the backend. All methods are called from one thread; a step that computes asynchronously still lets `submit`,
 * `cancel` and `status` in between, and these only change flags and the queue, never a lane.
 *
 *   step: settle cancellations → admit → plan a batch → decode → sample → publish
 *
 * Nothing is over-committed: a request runs only with a lane of its own, so no request fails because of another. A failed
 * step ends the requests that were in it and empties their lanes; three failed steps in a row end the engine (`onFatal`).
 */

import {
  assertNever,
  type Clock,
  CodedError,
  invariant,
  messageOf,
  type RequestId,
  SeededRandom,
  toErrorRecord,
} from "@kvasir/kit";
import type { Backend, DecodeOutcome } from "./backend.ts";
import { LaneMemory, type PrefixReuse } from "./lane-memory.ts";
import { commonPrefix } from "./lane-table.ts";
import type { EngineEvent, EngineRequest, EngineStatus, FinishReason } from "./request.ts";
import { requestFault } from "./request-check.ts";
import { RunningRequest, unadmittedResult, type Vocabulary } from "./running-request.ts";
import { SamplingScratch } from "./sampling/token-sampler.ts";
import { type DecodeRows, type PrefillRows, Step, type StepLimits } from "./step.ts";
import { StepCost } from "./step-cost.ts";
import { type WaitingRequest, WaitingQueue } from "./waiting-queue.ts";
import { warmUp } from "./warm-up.ts";

export interface EngineOptions {
  /** Most requests that run at once; never more than lanes. */
  readonly maxConcurrency: number;
  /** Most requests that wait; one more is refused with queue_full. */
  readonly maxPendingRequests: number;
  /** Longest gap that a prefill chunk may put into a running stream, in milliseconds. */
  readonly itlTargetMs: number;
  /** Prefill tokens of a step while nothing decodes: the longest wait of a cancellation. */
  readonly prefillChunkTokens: number;
  /** Most tokens that prompt lookup drafts for a request and step; 0 switches speculation off. */
  readonly draftTokens: number;
}

const FATAL_FAILURES = 3;
/** Longest time that closing spends on writing stored pages to disk. */
const SPILL_AT_CLOSE_MS = 10_000;

type Ending = { readonly reason: FinishReason } | { readonly error: unknown };

/** Lets the event loop deliver what has arrived, then goes on. */
const yieldToEventLoop = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

export class Engine {
  readonly #backend: Backend;
  readonly #options: EngineOptions;
  readonly #clock: Clock;
  readonly #publish: (events: EngineEvent[]) => void;
  readonly #onFatal: (error: unknown) => void;
  readonly #vocabulary: Vocabulary;
  readonly #lanes: LaneMemory;
  readonly #waiting: WaitingQueue;
  /** In order of admission. */
  readonly #running = new Map<RequestId, RunningRequest>();
  /** The step that is planned or running. */
  readonly #next: Step;
  readonly #limits: StepLimits;
  readonly #cost = new StepCost();
  #events: EngineEvent[] = [];
  #loop: Promise<void> | null = null;
  #wake: (() => void) | null = null;
  #draining = false;
  #failuresInARow = 0;
  #counters = {
    steps: 0,
    decodeRows: 0,
    decodeSteps: 0,
    prefillTokens: 0,
    cachedTokens: 0,
    outputTokens: 0,
    draftedTokens: 0,
    acceptedTokens: 0,
    stepSeconds: 0,
  };

  /**
   * @param publish receives the events of a step, in order; called between steps, must not throw
   * @param onFatal called once when the backend fails again and again; every request has been failed before
   * @param reuse rows and store for reuse beyond the lane itself; closed with the engine
   */
  constructor(
    backend: Backend,
    options: EngineOptions,
    clock: Clock,
    publish: (events: EngineEvent[]) => void,
    onFatal: (error: unknown) => void = (error) => {
      throw error;
    },
    reuse: PrefixReuse | null = null,
  ) {
    const { facts } = backend;
    invariant(
      options.maxConcurrency >= 1 && options.maxConcurrency <= facts.laneCount,
      `maxConcurrency ${options.maxConcurrency} needs as many lanes, the backend has ${facts.laneCount}`,
    );
    invariant(
      facts.outputRows >= options.maxConcurrency,
      `the backend gives ${facts.outputRows} output rows for ${options.maxConcurrency} requests`,
    );
    this.#backend = backend;
    this.#options = options;
    this.#clock = clock;
    this.#publish = publish;
    this.#onFatal = onFatal;
    this.#vocabulary = {
      vocabSize: facts.vocabSize,
      endTokens: new Set(facts.endTokens),
      scratch: new SamplingScratch(),
      pieceOf: (token) => backend.pieceOf(token),
    };
    this.#lanes = new LaneMemory(backend, clock, reuse);
    this.#waiting = new WaitingQueue(clock, (waiting) => this.#expire(waiting));
    this.#next = new Step(facts.batchTokens);
    this.#limits = {
      targetMs: options.itlTargetMs,
      chunkTokens: options.prefillChunkTokens,
      outputRows: facts.outputRows,
      draftTokens: facts.canRollBack ? options.draftTokens : 0,
    };
  }

  /** Takes a request. What is wrong with it is told by a `failed` event, never by a throw. */
  submit(request: EngineRequest): void {
    const refusal = this.#refusal(request);
    if (refusal) {
      this.#events.push({
        kind: "failed",
        id: request.id,
        error: toErrorRecord(refusal),
        result: unadmittedResult(request, "cancelled", 0),
      });
      this.#flush();
      return;
    }
    const position = this.#waiting.push(
      request,
      this.#lanes.expect(request, () => this.#start()),
    );
    if (position > this.#freePlaces) {
      this.#events.push({ kind: "queued", id: request.id, position: position - this.#freePlaces });
      this.#flush();
    }
    this.#start();
  }

  /** Ends a request: a waiting one at once, a running one before the next step. Unknown ids are ignored. */
  cancel(id: RequestId): void {
    const waiting = this.#waiting.remove(id);
    if (waiting) {
      const result = unadmittedResult(waiting.request, "cancelled", this.#clock.monotonicMs() - waiting.arrivedMs);
      this.#events.push({ kind: "finished", id, result });
      this.#flush();
      return;
    }
    const running = this.#running.get(id);
    if (!running) return;
    running.cancelled = true;
    if ([...this.#running.values()].every((other) => other.cancelled)) this.#backend.abort();
    this.#start();
  }

  /** Holds a request between two tokens, for a reader that does not keep up; the others go on. */
  setPaused(id: RequestId, paused: boolean): void {
    const running = this.#running.get(id);
    if (!running) return;
    running.paused = paused;
    this.#start();
  }

  get busy(): boolean {
    return this.#waiting.length > 0 || this.#running.size > 0;
  }

  status(): EngineStatus {
    const running = [...this.#running.values()];
    const prefilling = running.filter((request) => request.prefilling).length;
    return {
      lanes: this.#lanes.snapshot(),
      store: this.#lanes.store?.status() ?? null,
      waiting: this.#waiting.length,
      prefilling,
      decoding: running.length - prefilling,
      counters: { ...this.#counters },
    };
  }

  /** Takes no new requests and resolves when all that were taken have ended. */
  async drain(): Promise<void> {
    this.#draining = true;
    await this.#loop;
  }

  /** Cancels everything, waits for the step in flight, closes the backend. */
  async close(): Promise<void> {
    this.#draining = true;
    for (let waiting = this.#waiting.peek(); waiting; waiting = this.#waiting.peek()) this.cancel(waiting.request.id);
    for (const id of this.#running.keys()) this.cancel(id);
    await this.#loop;
    await this.#lanes.close(this.#clock.monotonicMs() + SPILL_AT_CLOSE_MS);
    await this.#backend.close();
  }

  /**
   * Runs every kind of step once on an empty lane, so that the first request does not pay for lazy allocation, and seeds the
   * cost estimate. Call before the first `submit`.
   */
  async warmUp(): Promise<void> {
    invariant(!this.busy, "warmUp runs before the first request");
    await warmUp(this.#backend, this.#cost, this.#clock);
  }

  /** Compares queue, lanes and backend. @throws InvariantError naming what differs */
  checkIntegrity(): void {
    this.#lanes.checkIntegrity([...this.#running.values()].map((running) => running.lane));
  }

  // ------------------------------------------------------------------ admission

  get #freePlaces(): number {
    return this.#options.maxConcurrency - this.#running.size;
  }

  #refusal(request: EngineRequest): CodedError | null {
    if (this.#draining) return new CodedError("shutting_down", "The server is shutting down and takes no new requests.");
    invariant(!this.#running.has(request.id) && !this.#waiting.has(request.id), `request ${request.id} exists already`);
    const fault = requestFault(request, this.#backend.facts);
    if (fault) return fault;
    const { maxPendingRequests } = this.#options;
    if (this.#waiting.length - this.#freePlaces < maxPendingRequests) return null;
    const load = `${this.#running.size} requests run and ${this.#waiting.length} wait`;
    return new CodedError("queue_full", `${load}; at most ${maxPendingRequests} may wait. Try again later.`);
  }

  #expire({ request, arrivedMs }: WaitingRequest): void {
    const error = new CodedError(
      "queue_timeout",
      `The request waited ${request.pendingTimeoutMs} ms for a lane and none became free. Try again later.`,
    );
    const result = unadmittedResult(request, "cancelled", this.#clock.monotonicMs() - arrivedMs);
    this.#events.push({ kind: "failed", id: request.id, error: toErrorRecord(error), result });
    this.#flush();
  }

  #admit(): void {
    for (const waiting of this.#waiting.entries()) {
      if (this.#freePlaces <= 0 || !this.#lanes.hasFreeLane) return;
      if (waiting.expectation.isLoading || this.#awaitsHead(waiting)) continue;
      this.#waiting.remove(waiting.request.id);
      this.#place(waiting);
    }
  }

  /**
   * Single flight: a request whose head another one is computing now waits for it instead of computing it too. It goes on when
   * the head is there, or when the other one has ended; others may be admitted meanwhile.
   */
  #awaitsHead({ request, sharedWith }: WaitingRequest): boolean {
    for (const [id, running] of this.#running) {
      if (!running.prefilling || running.cancelled || running.request.namespace !== request.namespace) continue;
      let shared = sharedWith.get(id);
      if (shared === undefined) {
        shared = commonPrefix(running.request.promptTokens, request.promptTokens);
        sharedWith.set(id, shared);
      }
      if (shared > running.storedTokens && this.#lanes.isWorthAwaiting(request, shared)) return true;
    }
    return false;
  }

  #place({ request, arrivedMs, expectation }: WaitingRequest): void {
    const admittedMs = this.#clock.monotonicMs();
    const placement = this.#lanes.place(request, expectation.diskTokens);
    const random = new SeededRandom(request.sampling.seed);
    const running = new RunningRequest(
      request,
      { ...placement, arrivedMs, admittedMs },
      this.#backend.facts.laneTokens,
      this.#vocabulary,
      random,
      this.#limits.draftTokens,
    );
    this.#running.set(request.id, running);
    const { lane, cachedTokens } = placement;
    this.#counters.cachedTokens += cachedTokens;
    this.#events.push({ kind: "admitted", id: request.id, lane, cachedTokens, queueMs: admittedMs - arrivedMs });
    if (!running.prefilling) this.#finish(running, "length");
  }

  // ------------------------------------------------------------------ the step loop

  #start(): void {
    this.#wake?.();
    if (this.#loop || !this.busy) return;
    this.#loop = this.#run().finally(() => {
      this.#loop = null;
    });
  }

  async #run(): Promise<void> {
    while (this.busy) {
      const progressed = await this.#step();
      this.#flush();
      this.#lanes.spill();
      // Everything that runs is held by slow readers: sleep until one of them, a cancellation or a new request moves.
      if (progressed) await yieldToEventLoop();
      else if (this.busy) await this.#sleep();
    }
  }

  #sleep(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = () => {
        this.#wake = null;
        resolve();
      };
    });
  }

  /** One step. @returns whether anything could be computed */
  async #step(): Promise<boolean> {
    this.#settleCancellations();
    this.#admit();
    this.#next.plan(this.#running.values(), this.#cost, this.#limits);
    if (this.#next.batch.rows === 0) return false;
    this.#flush();
    const startMs = this.#clock.monotonicMs();
    try {
      const computing = this.#backend.decode(this.#next.batch);
      const outcome = computing instanceof Promise ? await computing : computing;
      this.#recordStep(outcome, this.#clock.monotonicMs() - startMs);
      this.#failuresInARow = 0;
    } catch (error) {
      this.#failStep(error);
    }
    return true;
  }

  #settleCancellations(): void {
    for (const running of this.#running.values()) if (running.cancelled) this.#finish(running, "cancelled");
  }

  #recordStep(outcome: DecodeOutcome, milliseconds: number): void {
    switch (outcome) {
      case "no-room":
        throw new CodedError("decode_failed", "A lane had no room although its request had reserved it.");
      case "aborted":
        this.#keepStored();
        return;
      case "done":
        break;
      default:
        assertNever(outcome);
    }
    const { decode, decodeRows, prefill, prefillTokens, prefillDepth } = this.#next;
    this.#cost.record({ decodeRows, prefillTokens, prefillDepth, milliseconds });
    this.#counters.steps++;
    this.#counters.decodeRows += decode.length;
    this.#counters.decodeSteps += decode.length > 0 ? 1 : 0;
    this.#counters.prefillTokens += prefillTokens;
    this.#counters.stepSeconds += milliseconds / 1000;
    for (const rows of decode) this.#recordDecode(rows, decode.length);
    for (const rows of prefill) this.#recordPrefill(rows);
  }

  /**
   * Samples row by row while the drafts hold: a draft is right when the token sampled before it is the draft itself, so output
   * and random numbers are those of plain decoding. The lane is cut behind the last right one.
   */
  #recordDecode({ running, row, drafts }: DecodeRows, batchRequests: number): void {
    this.#lanes.append(running.lane, Int32Array.of(running.pendingToken, ...drafts));
    let accepted = 0;
    let ending = this.#sample(running, row);
    while (ending === null && accepted < drafts.length && running.pendingToken === drafts[accepted]) {
      accepted++;
      ending = this.#sample(running, row + accepted);
    }
    running.recordDecode(1 + accepted, batchRequests);
    if (drafts.length > 0) {
      this.#lanes.cut(running.lane, running.storedTokens);
      running.recordDraft(drafts.length, accepted);
      this.#counters.draftedTokens += drafts.length;
      this.#counters.acceptedTokens += accepted;
    }
    this.#end(running, ending);
  }

  #recordPrefill({ running, tokens, outputRow }: PrefillRows): void {
    const { promptTokens } = running.request;
    this.#lanes.append(running.lane, promptTokens.subarray(running.storedTokens, running.storedTokens + tokens));
    running.recordPrefill(tokens);
    this.#events.push({
      kind: "prefill",
      id: running.request.id,
      processedTokens: running.storedTokens,
      totalTokens: promptTokens.length,
    });
    if (outputRow >= 0) this.#end(running, this.#sample(running, outputRow));
    else if (!running.prefilling) this.#finish(running, "length");
  }

  /** Samples a row and publishes the token. @returns how the request ends with it, or null */
  #sample(running: RunningRequest, row: number): Ending | null {
    if (running.cancelled) return { reason: "cancelled" };
    const { id } = running.request;
    try {
      const { token, text, logprob, finished } = running.sample(this.#backend.logitsOf(row), this.#clock.monotonicMs());
      this.#counters.outputTokens++;
      // An end token has no text of its own: only text that was held back goes out with it.
      const tokens = finished === "end" ? [] : [token];
      if (text !== "" || tokens.length > 0) {
        this.#events.push({ kind: "output", id, text, tokens, ...(logprob === null ? {} : { logprobs: [logprob] }) });
      }
      return finished === null ? null : { reason: finished };
    } catch (error) {
      return { error };
    }
  }

  /** After an abort, which only happens when every running request is cancelled: the lanes keep what they got. */
  #keepStored(): void {
    for (const { running, drafts } of this.#next.decode) {
      const stored = this.#backend.storedTokens(running.lane) - running.storedTokens;
      this.#lanes.append(running.lane, Int32Array.of(running.pendingToken, ...drafts).subarray(0, stored));
    }
    for (const { running, tokens } of this.#next.prefill) {
      const stored = this.#backend.storedTokens(running.lane) - running.storedTokens;
      invariant(stored >= 0 && stored <= tokens, `lane ${running.lane} stored ${stored} of ${tokens} rows`);
      this.#lanes.append(
        running.lane,
        running.request.promptTokens.subarray(running.storedTokens, running.storedTokens + stored),
      );
      running.recordPrefill(stored);
    }
  }

  #failStep(error: unknown): void {
    this.#failuresInARow++;
    for (const { running } of [...this.#next.decode, ...this.#next.prefill]) {
      if (!this.#running.has(running.request.id)) continue;
      this.#lanes.wipe(running.lane);
      this.#fail(running, error);
    }
    if (this.#failuresInARow < FATAL_FAILURES) return;
    for (const running of this.#running.values()) this.#fail(running, error);
    for (let waiting = this.#waiting.shift(); waiting; waiting = this.#waiting.shift()) {
      this.#events.push({
        kind: "failed",
        id: waiting.request.id,
        error: toErrorRecord(error),
        result: unadmittedResult(waiting.request, "cancelled", 0),
      });
    }
    this.#flush();
    this.#onFatal(error);
  }

  // ------------------------------------------------------------------ ends

  #end(running: RunningRequest, ending: Ending | null): void {
    if (ending === null) return;
    if ("reason" in ending) this.#finish(running, ending.reason);
    else this.#fail(running, ending.error);
  }

  #finish(running: RunningRequest, reason: FinishReason): void {
    const text = reason === "cancelled" ? running.flushText() : "";
    if (text !== "") this.#events.push({ kind: "output", id: running.request.id, text, tokens: [] });
    this.#events.push({ kind: "finished", id: running.request.id, result: running.result(reason, this.#clock.monotonicMs()) });
    this.#leave(running);
  }

  #fail(running: RunningRequest, cause: unknown): void {
    const error = cause instanceof CodedError ? cause : new CodedError("decode_failed", messageOf(cause), { cause });
    const result = running.result("cancelled", this.#clock.monotonicMs());
    this.#events.push({ kind: "failed", id: running.request.id, error: toErrorRecord(error), result });
    this.#leave(running);
  }

  #leave(running: RunningRequest): void {
    this.#running.delete(running.request.id);
    this.#lanes.release(running.lane);
  }

  #flush(): void {
    if (this.#events.length === 0) return;
    const events = this.#events;
    this.#events = [];
    this.#publish(events);
  }
}
