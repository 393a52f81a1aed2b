/**
 * What need not be computed again: tokens in lanes, and prefixes in the store. Owned by the engine's step loop; the only caller
 * of the backend's `truncate` and of `LaneRows`.
 *
 *   prompt   [0 .......... reused .......... prompt length)
 *             in place: the lane keeps what it shares with the prompt
 *             copied:   from another lane, or from the store's pages, into an emptied lane
 *
 * A lane is written back before its tokens are cut, not after every turn: what is in a lane costs nothing to use, and is not
 * held twice. With a disk tier a turn is stored when it ends, so that it survives this process.
 */

import { type Clock, invariant } from "@kvasir/kit";
import type { Backend } from "./backend.ts";
import { LaneTable, type LaneView } from "./lane-table.ts";
import type { EngineRequest, LaneState, ResetReason } from "./request.ts";
import { SeenPrefixes } from "./seen-prefixes.ts";
import type { LanePiece, LaneRows } from "./store/page.ts";
import type { PrefixStore } from "./store/prefix-store.ts";
import type { PrefixMatch } from "./store/prefix-tree.ts";

/** What reuse beyond the lane itself needs. Absent for memory that cannot be cut into pages. */
export interface PrefixReuse {
  readonly rows: LaneRows;
  readonly store: PrefixStore;
  /** Store every turn when it ends: there is a disk tier. */
  readonly storeTurns: boolean;
}

export interface Placement {
  readonly lane: number;
  /** Leading prompt tokens that the lane holds already, from wherever they came. */
  readonly cachedTokens: number;
  /** Of these, tokens copied from host memory, and tokens that were on disk before. */
  readonly hostTokens: number;
  readonly diskTokens: number;
  readonly restoreMs: number;
  readonly restoredBytes: number;
  /** Prompt tokens that were ever computed before: what an infinite cache would have reused. */
  readonly possibleTokens: number;
  readonly resetReason: ResetReason;
  /** For "rewritten": the first prompt token that differs from what the lane held. */
  readonly divergedAt: number | null;
}

/** What the memory keeps for a request while it waits. */
export interface Expectation {
  /** Whether stored pages are still being read from disk. */
  readonly isLoading: boolean;
  /** Tokens of the pages that were read from disk. */
  readonly diskTokens: number;
  release(): void;
}

interface Source {
  readonly tokens: number;
  /** Of these, tokens that come from the store; the others come from a lane. */
  readonly storedTokens: number;
  readonly pieces: readonly LanePiece[];
  release(): void;
}

/** Fewer tokens are computed rather than copied or waited for: a small batch costs little more than none. */
const LEAST_COPIED_TOKENS = 16;
/** A lane that loses at most this many tokens is the prompt's own session; they are not worth writing back. */
const OWN_TAIL_TOKENS = 256;

export class LaneMemory {
  readonly #backend: Backend;
  readonly #clock: Clock;
  readonly #lanes: LaneTable;
  readonly #reuse: PrefixReuse | null;
  readonly #seen = new SeenPrefixes();
  /** When the turn that a lane holds ended: a lane that is written back later is not younger for it. */
  readonly #endedMs = new Map<number, number>();
  #isSpilling = false;
  #isClosed = false;
  /** Ends the mark of the pages that a lane holds too. */
  readonly #unmark = new Map<number, () => void>();

  constructor(backend: Backend, clock: Clock, reuse: PrefixReuse | null) {
    this.#backend = backend;
    this.#clock = clock;
    this.#reuse = reuse;
    this.#lanes = new LaneTable(backend.facts.laneCount, backend.facts.laneTokens);
  }

  get hasFreeLane(): boolean {
    return this.#lanes.hasFreeLane;
  }

  get store(): PrefixStore | null {
    return this.#reuse?.store ?? null;
  }

  snapshot(): ReadonlyArray<{ readonly state: LaneState; readonly tokens: number }> {
    return this.#lanes.snapshot();
  }

  /**
   * Keeps stored pages that a waiting request will hit, and brings those on disk into host memory.
   * @param onLoaded called when nothing is left to load; not called when nothing had to be
   */
  expect({ namespace, promptTokens }: EngineRequest, onLoaded: () => void): Expectation {
    const { store } = this;
    if (!store) return { isLoading: false, diskTokens: 0, release: () => {} };
    const match = store.match(namespace, promptTokens);
    const lease = store.lease(match);
    const expectation = { isLoading: match.diskTokens > 0, diskTokens: 0, release: () => lease.release() };
    if (expectation.isLoading) {
      const load = async (): Promise<void> => {
        expectation.diskTokens = (await store.load(match)).diskTokens;
        expectation.isLoading = false;
        onLoaded();
      };
      void load();
    }
    return expectation;
  }

  /** Whether a head that `running` is about to compute is worth waiting for, given what can be reused now. */
  isWorthAwaiting(request: EngineRequest, sharedTokens: number): boolean {
    if (!this.#reuse) return false;
    return sharedTokens - this.#reusableTokens(request) >= LEAST_COPIED_TOKENS;
  }

  /**
   * Gives the best free lane to a request, with as much of its prompt as can be had without computing. There must be one.
   * @param loadedTokens stored tokens that were read from disk while the request waited
   */
  place(request: EngineRequest, loadedTokens: number): Placement {
    const startMs = this.#clock.monotonicMs();
    const { namespace, promptTokens: prompt } = request;
    const views = this.#lanes.views(namespace, prompt);
    const target = this.#chooseTarget(views);
    // The last prompt token is computed again even when it is known: its logits give the first output token.
    const usable = request.maxTokens > 0 ? prompt.length - 1 : prompt.length;
    const wanted = Math.min(target.sharedTokens, usable);
    const inPlace = this.#backend.canResume(target.lane, wanted) ? wanted : 0;
    const source = this.#source(views, target, namespace, prompt.subarray(0, usable));
    const copies = source !== null && source.tokens >= inPlace + LEAST_COPIED_TOKENS;
    const kept = copies ? 0 : inPlace;
    const isLost = target.heldTokens - kept > (this.#goesOn(target) ? OWN_TAIL_TOKENS : 0);
    if (isLost || copies) this.#save(target.lane);
    this.#cutFree(target.lane, kept);
    if (copies) this.#reuse?.rows.write(target.lane, source.pieces);
    source?.release();
    const cachedTokens = copies ? source.tokens : kept;
    const diskTokens = copies ? Math.min(loadedTokens, source.storedTokens) : 0;
    this.#lanes.take(target.lane, namespace, kept);
    if (copies) this.#lanes.append(target.lane, prompt.subarray(0, cachedTokens));
    this.#noteUse(target.lane, namespace, prompt.subarray(0, cachedTokens), copies && source.storedTokens > 0);
    const seen = Math.max(this.#seen.covered(namespace, prompt), ...views.map(({ sharedTokens }) => sharedTokens));
    const possibleTokens = Math.max(cachedTokens, Math.min(seen, usable));
    return {
      lane: target.lane,
      cachedTokens,
      hostTokens: copies ? source.storedTokens - diskTokens : 0,
      diskTokens,
      restoredBytes: copies ? cachedTokens * (this.#reuse?.rows.layout.bytesPerToken ?? 0) : 0,
      restoreMs: this.#clock.monotonicMs() - startMs,
      possibleTokens,
      ...explain(cachedTokens, possibleTokens, target, views, prompt.length),
    };
  }

  /** Records tokens that the backend has stored in a running lane. */
  append(lane: number, tokens: Int32Array): void {
    this.#lanes.append(lane, tokens);
  }

  /** Takes back the last tokens of a running lane, in table and backend. */
  cut(lane: number, length: number): void {
    this.#backend.truncate(lane, length);
    this.#lanes.cut(lane, length);
  }

  /** Empties a running lane whose contents can't be trusted. */
  wipe(lane: number): void {
    this.#unmarkLane(lane);
    this.cut(lane, 0);
  }

  /** Gives a lane back; its tokens stay for the session's next turn. */
  release(lane: number): void {
    this.#lanes.release(lane);
    this.#endedMs.set(lane, this.#clock.monotonicMs());
    this.#seen.add(this.#lanes.namespace(lane), this.#lanes.tokens(lane));
    if (!this.#reuse?.storeTurns) return;
    this.#save(lane);
    // What lane and store hold both is the first to go.
    this.#unmarkLane(lane);
    const match = this.#reuse.store.match(this.#lanes.namespace(lane), this.#lanes.tokens(lane));
    this.#unmark.set(lane, this.#reuse.store.markResident(match));
  }

  /** Writes stored pages to disk beside the steps, one at a time, until nothing is left to write. */
  spill(): void {
    if (!this.#reuse?.storeTurns || this.#isSpilling) return;
    const { store } = this.#reuse;
    const spillAll = async (): Promise<void> => {
      this.#isSpilling = true;
      while (!this.#isClosed && (await store.spill())) continue;
      this.#isSpilling = false;
    };
    void spillAll();
  }

  /** Brings what idle lanes hold to disk, where there is one, and gives the store back. */
  async close(deadlineMs: number): Promise<void> {
    this.#isClosed = true;
    if (!this.#reuse) return;
    const { store, storeTurns } = this.#reuse;
    if (storeTurns) {
      for (const [lane, { state }] of this.#lanes.snapshot().entries()) if (state === "idle") this.#save(lane);
      await store.spillAll(deadlineMs);
    }
    await store.close();
  }

  /** Compares the lanes with the backend and with their owners. @throws InvariantError naming the lane that differs */
  checkIntegrity(owned: readonly number[]): void {
    for (let lane = 0; lane < this.#lanes.laneCount; lane++) {
      const stored = this.#backend.storedTokens(lane);
      const listed = this.#lanes.length(lane);
      invariant(stored === listed, `lane ${lane}: ${listed} tokens in the table, ${stored} in the backend`);
    }
    invariant(new Set(owned).size === owned.length, `a lane has two owners: ${owned.join(", ")}`);
    const running = this.#lanes.snapshot().filter((lane) => lane.state === "running").length;
    invariant(running === owned.length, `${running} lanes are running for ${owned.length} requests`);
    this.store?.checkIntegrity();
  }

  /**
   * The free lane to use: the one whose session goes on; else an empty one; else the one that was idle for longest. Without a
   * store a lane that shares half of what it holds counts as going on, because nothing else could bring that half back.
   */
  #chooseTarget(views: readonly LaneView[]): LaneView {
    const free = views.filter(({ state }) => state !== "running");
    const own = free.filter((view) => this.#goesOn(view)).toSorted((one, other) => other.sharedTokens - one.sharedTokens)[0];
    const oldest = free.toSorted((one, other) => useOf(one) - useOf(other))[0];
    const target = own ?? oldest;
    invariant(target, "a free lane was promised");
    return target;
  }

  /**
   * Whether the prompt goes on with the lane's session: it shares at least half of what the lane holds and, where the rest could
   * be kept in the store instead, all but a short tail.
   */
  #goesOn({ heldTokens, sharedTokens }: LaneView): boolean {
    if (sharedTokens === 0 || sharedTokens * 2 < heldTokens) return false;
    return this.#reuse === null || heldTokens - sharedTokens <= OWN_TAIL_TOKENS;
  }

  /** The longest prefix that can be copied: stored pages, or the rows of another lane. */
  #source(views: readonly LaneView[], target: LaneView, namespace: string, prompt: Int32Array): Source | null {
    if (!this.#reuse) return null;
    const { store } = this.#reuse;
    const match = inHostMemory(store.match(namespace, prompt));
    const donor = views
      .filter(({ lane }) => lane !== target.lane)
      .toSorted((one, other) => other.sharedTokens - one.sharedTokens)[0];
    const donorTokens = Math.min(donor?.sharedTokens ?? 0, prompt.length);
    if (donor && donorTokens >= match.tokens && donorTokens > 0) {
      return {
        tokens: donorTokens,
        storedTokens: 0,
        pieces: [{ lane: donor.lane, count: donorTokens }],
        release: () => {},
      };
    }
    if (match.tokens === 0) return null;
    const lease = store.lease(match);
    return {
      tokens: match.tokens,
      storedTokens: match.tokens,
      pieces: store.pieces(match),
      release: () => lease.release(),
    };
  }

  #reusableTokens({ namespace, promptTokens }: EngineRequest): number {
    const stored = this.store?.match(namespace, promptTokens).tokens ?? 0;
    return Math.max(stored, ...this.#lanes.views(namespace, promptTokens).map(({ sharedTokens }) => sharedTokens));
  }

  #save(lane: number): void {
    const tokens = this.#lanes.tokens(lane);
    if (!this.#reuse || tokens.length === 0) return;
    const { rows, store } = this.#reuse;
    const endedMs = this.#endedMs.get(lane);
    const hints = endedMs === undefined ? {} : { endedMs };
    store.put(this.#lanes.namespace(lane), tokens, (from, count, target) => rows.read(lane, from, count, target), hints);
  }

  #cutFree(lane: number, length: number): void {
    this.#unmarkLane(lane);
    this.#backend.truncate(lane, length);
  }

  #unmarkLane(lane: number): void {
    this.#unmark.get(lane)?.();
    this.#unmark.delete(lane);
  }

  /** Tells the store that a prefix was asked for, and which of its pages a lane holds now. */
  #noteUse(lane: number, namespace: string, reused: Int32Array, fromStore: boolean): void {
    if (!this.store || reused.length === 0) return;
    const match = this.store.match(namespace, reused);
    this.store.touch(match, fromStore ? "store" : "lane");
    this.#unmark.set(lane, this.store.markResident(match));
  }
}

/** Empty lanes first, then by the order of their last use. */
function useOf({ state, lastUse }: LaneView): number {
  return state === "empty" ? -1 : lastUse;
}

/** The first part of a match that is in host memory. */
function inHostMemory(match: PrefixMatch): PrefixMatch {
  if (match.diskTokens === 0) return match;
  const count = match.pages.findIndex((page) => page.slot === null);
  const pages = match.pages.slice(0, count);
  const tokens = pages.reduce((total, page) => total + page.tokens.length, 0);
  return { pages, lastCount: pages.at(-1)?.tokens.length ?? 0, tokens, hostTokens: tokens, diskTokens: 0 };
}

/** Why tokens are computed again that were computed before. */
function explain(
  cached: number,
  possible: number,
  target: LaneView,
  views: readonly LaneView[],
  promptLength: number,
): { resetReason: ResetReason; divergedAt: number | null } {
  const isReset = possible * 2 >= promptLength && cached * 2 < possible;
  if (isReset) {
    // Still in a lane that is busy, or whose memory cannot go back to that point; otherwise it is gone.
    const isHeld = views.some(({ sharedTokens }) => sharedTokens * 2 >= possible);
    return { resetReason: isHeld ? "capacity" : "evicted", divergedAt: null };
  }
  if (cached === 0) return { resetReason: "cold", divergedAt: null };
  const { sharedTokens, heldTokens } = target;
  const isOwn = sharedTokens * 2 >= heldTokens && sharedTokens < heldTokens && sharedTokens < promptLength;
  return isOwn && cached <= sharedTokens
    ? { resetReason: "rewritten", divergedAt: sharedTokens }
    : { resetReason: "none", divergedAt: null };
}
