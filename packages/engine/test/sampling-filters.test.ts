import { SeededRandom } from "@kvasir/kit";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type SamplingSettings, SamplingScratch, TokenHistory, TokenSampler } from "../src/index.ts";
import { settingsWith } from "./sampling-settings.ts";

const noHistory = new TokenHistory(new Int32Array(0));

/** The tokens that the settings leave to the draw, in ascending order. */
function survivors(logits: readonly number[], settings: SamplingSettings): number[] {
  const scratch = new SamplingScratch();
  const row = Float32Array.from(logits);
  const sampler = new TokenSampler(settings, row.length, new SeededRandom(1), scratch);
  const token = sampler.sample(row, noHistory);
  const ids = [...scratch.candidates.ids];
  expect(ids).toContain(token);
  expect([...row]).toEqual([...Float32Array.from(logits)]);
  return ids;
}

interface Entry {
  token: number;
  logit: number;
}

const byLikelihood = (left: Entry, right: Entry): number => right.logit - left.logit || left.token - right.token;

function probabilities(entries: readonly Entry[]): number[] {
  const largest = Math.max(...entries.map(({ logit }) => logit));
  const weights = entries.map(({ logit }) => Math.exp(logit - largest));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

/** Smallest head of `ordered` that reaches `share`; null when rounding could decide either way. */
function headReaching(share: number, ordered: ReadonlyArray<Entry & { probability: number }>): Entry[] | null {
  let reached = 0;
  for (const [index, { probability }] of ordered.entries()) {
    reached += probability;
    if (Math.abs(reached - share) < 1e-5) return null;
    if (reached >= share) return ordered.slice(0, index + 1);
  }
  return [...ordered];
}

/** The same steps written for clarity: everything sorted, nothing cut early. */
function referenceSurvivors(logits: readonly number[], settings: SamplingSettings): number[] | null {
  let entries: Entry[] = logits.map((logit, token) => ({ token, logit })).sort(byLikelihood);
  if (settings.topK > 0) entries = entries.slice(0, settings.topK);
  if (settings.typicalP < 1) {
    const shares = probabilities(entries);
    const entropy = -shares.reduce((sum, share) => sum + share * Math.log(share), 0);
    const ordered = entries
      .map((entry, index) => ({
        ...entry,
        probability: shares[index] ?? 0,
        distance: Math.abs(-Math.log(shares[index] ?? 0) - entropy),
      }))
      .sort((left, right) => left.distance - right.distance);
    const head = headReaching(settings.typicalP, ordered);
    if (!head) return null;
    const last = ordered[head.length - 1];
    const next = ordered[head.length];
    if (last && next && next.distance - last.distance < 1e-5) return null;
    entries = [...head].sort(byLikelihood);
  }
  if (settings.topP < 1) {
    const shares = probabilities(entries);
    const head = headReaching(
      settings.topP,
      entries.map((entry, index) => ({ ...entry, probability: shares[index] ?? 0 })),
    );
    if (!head) return null;
    entries = head;
  }
  if (settings.minP > 0) {
    const shares = probabilities(entries);
    const least = settings.minP * Math.max(...shares);
    if (shares.some((share) => Math.abs(share - least) < 1e-6 * least)) return null;
    entries = entries.filter((_, index) => (shares[index] ?? 0) >= least);
  }
  return entries.map(({ token }) => token).sort((left, right) => left - right);
}

describe("the tokens that filters leave", () => {
  test("equal a sorted reference for any settings", () => {
    const logit = fc.integer({ min: -1200, max: 1200 }).map((value) => value / 64);
    const share = fc.double({ min: 0.02, max: 1, noNaN: true });
    let compared = 0;
    fc.assert(
      fc.property(
        fc.array(logit, { minLength: 1, maxLength: 200 }),
        fc.record({
          topK: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 220 })),
          typicalP: fc.oneof(fc.constant(1), share),
          topP: fc.oneof(fc.constant(1), share),
          minP: fc.oneof(fc.constant(0), share),
        }),
        (logits, filters) => {
          const settings = settingsWith(filters);
          const expected = referenceSurvivors(logits, settings);
          fc.pre(expected !== null);
          compared++;
          // What lies 32 nats below the best is cut at once; the reference keeps it only when nothing else filters.
          const largest = Math.max(...logits);
          expect(survivors(logits, settings)).toEqual(expected?.filter((token) => largest - (logits[token] ?? 0) <= 32));
        },
      ),
      { numRuns: 600, seed: 7 },
    );
    expect(compared).toBeGreaterThan(400);
  });

  test("top_k keeps the lower ids among equals", () => {
    expect(survivors([1, 3, 2, 3, 2, 2], settingsWith({ topK: 3 }))).toEqual([1, 2, 3]);
    expect(survivors([5, 5, 5, 5, 5], settingsWith({ topK: 2 }))).toEqual([0, 1]);
    expect(survivors([1, 1, 1, 3], settingsWith({ topK: 3 }))).toEqual([0, 1, 3]);
  });

  test("top_p, typical and min_p keep at least one token at their extremes", () => {
    const logits = [0, 2, 1, -3];
    expect(survivors(logits, settingsWith({ topP: 0 }))).toEqual([1]);
    expect(survivors(logits, settingsWith({ typicalP: 0 }))).toHaveLength(1);
    expect(survivors(logits, settingsWith({ minP: 1 }))).toEqual([1]);
  });

  test("a flat row of a large vocabulary is cut by share", () => {
    const logits = Array.from({ length: 20_000 }, () => 0.5);
    expect(survivors(logits, settingsWith({ topP: 0.25 })).length).toBeCloseTo(5000, -1);
  });

  test("typical drops a token that is likelier than the entropy suggests", () => {
    // One token of 40 % and sixty of 1 %: the entropy is near −ln(1 %).
    const logits = [Math.log(40), ...Array.from({ length: 60 }, () => 0)];
    expect(survivors(logits, settingsWith({ typicalP: 0.5 }))).not.toContain(0);
  });

  test("a high temperature lets the far tail in again", () => {
    const logits = [0, -100];
    expect(survivors(logits, settingsWith({ temperature: 1 }))).toEqual([0]);
    expect(survivors(logits, settingsWith({ temperature: 50 }))).toEqual([0, 1]);
  });
});
