/**
 * How much the store's eviction policy makes a server compute twice, beside LRU and a policy that knows the future, on recorded
 * agent sessions. Virtual time, no model: the same numbers on every machine.
 *
 *   node packages/engine/bench/eviction-policy.ts
 */

import { formatCount, sum } from "@kvasir/kit";
import { type ReplayPolicy, replayEviction, workingSetPages } from "../test/support/eviction-replay.ts";
import { recordedTimeline } from "../test/support/recorded-timeline.ts";

const USERS = [4, 10, 20] as const;
const BUDGETS = [0.1, 0.25, 0.5, 0.75, 1] as const;
const SEEDS = [1, 2, 3] as const;
const POLICIES = ["lru", "value", "value-hints", "farthest"] as const;
const SCALE = 32;

/** Computed ÷ unavoidable, in tokens and in cost. */
interface Over {
  readonly tokens: number;
  readonly cost: number;
}

const print = (line: string): void => {
  process.stdout.write(`${line}\n`);
};

print(`Computed ÷ unavoidable, tokens / cost (a token at depth d costs 1 + d / 2500), mean of ${SEEDS.length} session orders`);
const overall = new Map<ReplayPolicy, Over[]>();
for (const users of USERS) {
  const timelines = SEEDS.map((seed) => recordedTimeline({ users, scale: SCALE, seed }));
  const workingSets = timelines.map((events) => workingSetPages(events));
  print("");
  print(`${users} users, working set ${workingSets.map(formatCount).join(", ")} pages`);
  print(`budget  ${POLICIES.map((policy) => policy.padStart(15)).join("")}`);
  for (const budget of BUDGETS) {
    const cells = POLICIES.map((policy) => {
      const runs = timelines.map((events, index): Over => {
        const outcome = replayEviction(events, Math.floor((workingSets[index] ?? 0) * budget), policy);
        return {
          tokens: outcome.computedTokens / outcome.unavoidableTokens,
          cost: outcome.computedCost / outcome.unavoidableCost,
        };
      });
      overall.set(policy, [...(overall.get(policy) ?? []), ...runs]);
      return `${mean(runs.map(({ tokens }) => tokens)).toFixed(3)} / ${mean(runs.map(({ cost }) => cost)).toFixed(3)}`;
    });
    print(`${`${budget * 100} %`.padEnd(8)}${cells.map((cell) => cell.padStart(15)).join("")}`);
  }
}
print("");
print("Geometric mean of the ratio to LRU over all cells");
const lru = overall.get("lru") ?? [];
for (const policy of POLICIES) {
  const runs = overall.get(policy) ?? [];
  const ratio = (of: (over: Over) => number): string =>
    Math.exp(mean(runs.map((run, index) => Math.log(of(run) / of(lru[index] ?? run))))).toFixed(3);
  print(`${policy.padEnd(12)} tokens ${ratio(({ tokens }) => tokens)}  cost ${ratio(({ cost }) => cost)}`);
}

function mean(values: readonly number[]): number {
  return sum(values) / values.length;
}
