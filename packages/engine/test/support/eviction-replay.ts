/** Replays a timeline of prompts through a PrefixStore without a lane or a model: how much a policy makes a server compute twice. */

import { ManualClock } from "@kvasir/kit";
import { PAGE_TOKENS } from "../../src/store/page.ts";
import type { PageNode } from "../../src/store/page-node.ts";
import { PrefixStore } from "../../src/store/prefix-store.ts";
import type { TimelineEvent } from "./recorded-timeline.ts";

/**
 * - `lru`: the leaf that was used longest ago goes first
 * - `value`: the store's own value, knowing which sessions run now
 * - `value-hints`: the same, told how a turn ended and which session it belongs to
 * - `farthest`: knows the future, the leaf whose next use is farthest goes first (Belady's rule on leaves)
 */
export type ReplayPolicy = "lru" | "value" | "value-hints" | "farthest";

export interface ReplayOutcome {
  readonly promptTokens: number;
  readonly computedTokens: number;
  /** Tokens that any cache must compute: those of all prompts, each once. */
  readonly unavoidableTokens: number;
  /** The same in units of one token's cost at depth 0. */
  readonly computedCost: number;
  readonly unavoidableCost: number;
  readonly store: PrefixStore;
}

/** Depth at which a token costs twice as much as the first one: that of a small model on a CPU. */
const DOUBLE_COST_DEPTH = 2500;

/** ∫ (1 + depth / 2500) over tokens [from, to). */
export function prefillCost(from: number, to: number): number {
  return to - from + (to ** 2 - from ** 2) / (2 * DOUBLE_COST_DEPTH);
}

/** Most pages of prompts that are in use at once: one prompt a user. */
export function workingSetPages(events: readonly TimelineEvent[]): number {
  const promptOf = new Map<number, Int32Array>();
  let most = 0;
  for (const { kind, user, prompt } of events) {
    if (kind === "end") continue;
    promptOf.set(user, prompt);
    const firstTokens = new Set<number>();
    for (const tokens of promptOf.values()) for (const token of pageStarts(tokens)) firstTokens.add(token);
    most = Math.max(most, firstTokens.size);
  }
  return most;
}

/** @param budgetPages room of the store in pages */
export function replayEviction(events: readonly TimelineEvent[], budgetPages: number, policy: ReplayPolicy): ReplayOutcome {
  const clock = new ManualClock();
  let now = 0;
  const future = policy === "farthest" ? usesByToken(events) : new Map<number, number[]>();
  const rankOf = (page: PageNode): number =>
    policy === "lru" ? page.lastUseMs : 1 / nextUse(future.get(page.tokens[page.tokens.length >> 1] ?? 0) ?? [], now);
  const store = new PrefixStore({
    layout: { rowBytes: [1], bytesPerToken: 1 },
    hostBudgetBytes: budgetPages * PAGE_TOKENS,
    clock,
    recomputeMs: prefillCost,
    ...(policy === "lru" || policy === "farthest" ? { rankOf } : {}),
  });
  const seen = new Set<number>();
  const leaveLane = new Map<number, () => void>();
  const totals = { promptTokens: 0, computedTokens: 0, unavoidableTokens: 0, computedCost: 0, unavoidableCost: 0 };
  for (const [index, { kind, timeMs, user, session, prompt, turnEnd }] of events.entries()) {
    now = index;
    clock.advance(timeMs - clock.monotonicMs());
    if (kind === "end") {
      leaveLane.get(user)?.();
      store.put("", prompt, () => undefined, policy === "value-hints" ? { session, end: turnEnd } : {});
      continue;
    }
    const match = store.match("", prompt);
    totals.promptTokens += prompt.length;
    totals.computedTokens += prompt.length - match.tokens;
    totals.computedCost += prefillCost(match.tokens, prompt.length);
    for (const [depth, token] of prompt.entries()) {
      if (seen.has(token)) continue;
      seen.add(token);
      totals.unavoidableTokens++;
      totals.unavoidableCost += prefillCost(depth, depth + 1);
    }
    store.touch(match);
    if (policy !== "lru") leaveLane.set(user, store.markResident(match));
  }
  for (const leave of leaveLane.values()) leave();
  store.checkIntegrity();
  return { ...totals, store };
}

function* pageStarts(prompt: Int32Array): Generator<number> {
  for (let start = 0; start < prompt.length; start += PAGE_TOKENS) yield prompt[start] ?? 0;
}

/** By token: the indices of the prompts that have it, in order. A page counts as asked for when at least half of it is. */
function usesByToken(events: readonly TimelineEvent[]): Map<number, number[]> {
  const uses = new Map<number, number[]>();
  for (const [index, { kind, prompt }] of events.entries()) {
    if (kind === "end") continue;
    for (const token of prompt) {
      const list = uses.get(token);
      if (list) list.push(index);
      else uses.set(token, [index]);
    }
  }
  return uses;
}

/** Removes what has passed: time only goes forward. */
function nextUse(uses: number[], now: number): number {
  while ((uses[0] ?? Number.POSITIVE_INFINITY) <= now) uses.shift();
  return uses[0] ?? 1e9;
}
