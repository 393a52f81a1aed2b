import type { ManualClock } from "@kvasir/kit";
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Batch } from "../src/batch.ts";
import { DraftLength } from "../src/speculation/draft-length.ts";
import { PromptLookup } from "../src/speculation/prompt-lookup.ts";
import { TokenHistory } from "../src/token-history.ts";
import type { ScriptedBackendOptions } from "../src/scripted-backend.ts";
import { EngineHarness, greedy, promptOf } from "./support/engine-harness.ts";

/** Follows the latest earlier occurrence of the last three tokens, found by looking at all of them. */
function draftByScan(tokens: readonly number[], most: number): number[] {
  if (tokens.length < 3) return [];
  for (let end = tokens.length - 1; end >= 3; end--) {
    if ([1, 2, 3].some((back) => tokens[end - back] !== tokens[tokens.length - back])) continue;
    const all = [...tokens];
    for (let i = 0; i < most; i++) all.push(all[end + i] as number);
    return all.slice(tokens.length);
  }
  return [];
}

test("a draft is what followed the last three tokens when they were seen last", () => {
  fc.assert(
    fc.property(
      fc.array(fc.nat(3), { minLength: 1, maxLength: 60 }),
      fc.array(fc.nat(3), { maxLength: 40 }),
      fc.nat(6),
      (prompt, output, most) => {
        const history = new TokenHistory(Int32Array.from(prompt));
        const lookup = new PromptLookup(history);
        const tokens = [...prompt];
        for (const token of output) {
          expect(lookup.draft(most)).toEqual(most === 0 ? [] : draftByScan(tokens, most));
          history.append(token);
          tokens.push(token);
        }
      },
    ),
  );
});

test("the index grows with a long prompt", () => {
  const prompt = Int32Array.from({ length: 20_000 }, (_, i) => (i * 7919) % 4099);
  const history = new TokenHistory(prompt);
  const draft = new PromptLookup(history).draft(4);
  expect(draft).toEqual([...prompt.subarray(20_000 - 4099, 20_000 - 4095)]);
});

test("drafting stops when guesses fail, and is tried again", () => {
  const length = new DraftLength(8);
  const cheap = (rows: number): number => 10 + rows;
  expect(length.choose(cheap)).toBeGreaterThan(2);
  for (let i = 0; i < 40; i++) length.record(4, 0);
  const choices = Array.from({ length: 50 }, () => length.choose(cheap));
  expect(choices.filter((choice) => choice > 0)).toHaveLength(2);
  for (let i = 0; i < 40; i++) length.record(4, 4);
  expect(length.choose(cheap)).toBe(8);
});

test("rows that cost as much as steps are not drafted for", () => {
  expect(new DraftLength(8).choose((rows) => 10 * (1 + rows))).toBe(0);
});

/** Time that makes a drafted row much cheaper than a step. */
const drafting =
  (options: ScriptedBackendOptions) =>
  (clock: ManualClock): ScriptedBackendOptions => ({ outputRows: 16, cost: { clock, perCallMs: 10, perRowMs: 1 }, ...options });

/** Repeats its prompt with a change now and then, like a model that edits a file. */
const editor = (tokens: readonly number[]): number | null =>
  (tokens.length * 31) % 17 < 14 ? (tokens[tokens.length - 40] ?? null) : null;

test("output with speculation is that without, greedy and sampled, with every kind of ending", async () => {
  for (const sampling of [
    greedy,
    { ...greedy, temperature: 1.5, seed: 11 },
    { ...greedy, repeatPenalty: 1.2, repeatLastN: 32 },
  ]) {
    for (const overrides of [
      { maxTokens: 60 },
      { maxTokens: 60, stop: ["zz", String.fromCharCode(40, 41)] },
      { maxTokens: 200 },
    ]) {
      const plain = await new EngineHarness({ nextToken: editor }).run("r", promptOf(3, 80), { sampling, ...overrides });
      const harness = new EngineHarness(drafting({ nextToken: editor }), { draftTokens: 6 });
      const drafted = await harness.run("r", promptOf(3, 80), { sampling, ...overrides });
      expect(drafted.tokens).toEqual(plain.tokens);
      expect(drafted.text).toBe(plain.text);
      expect(drafted.result?.reason).toBe(plain.result?.reason);
      expect(drafted.result?.outputTokens).toBe(plain.result?.outputTokens);
      expect(drafted.result?.acceptedTokens).toBeGreaterThan(0);
      await harness.settle();
    }
  }
});

test("right drafts save steps, and the numbers say how many", async () => {
  const repeat = (tokens: readonly number[]): number | null => tokens[tokens.length - 40] ?? null;
  const harness = new EngineHarness(drafting({ nextToken: repeat }), { draftTokens: 6 });
  const { result } = await harness.run("r", promptOf(3, 80), { maxTokens: 100 });
  expect(result?.acceptedTokens).toBeGreaterThan(50);
  expect(result?.draftedTokens).toBeGreaterThanOrEqual(result?.acceptedTokens ?? 0);
  expect(harness.backend.calls).toBeLessThan(60);
});

test("several requests share the output rows, and none goes without its own", async () => {
  let most = 0;
  const onDecode = (batch: Batch): void => {
    most = Math.max(most, batch.outputs);
  };
  const harness = new EngineHarness(drafting({ nextToken: editor, outputRows: 7, onDecode }), { draftTokens: 6 });
  const plain = new EngineHarness({ nextToken: editor });
  const prompts = [promptOf(3, 80), promptOf(9, 90), promptOf(50, 60), promptOf(70, 44)];
  const drafted = await Promise.all(prompts.map((prompt, index) => harness.run(`r${index}`, prompt, { maxTokens: 80 })));
  const expected = await Promise.all(prompts.map((prompt, index) => plain.run(`r${index}`, prompt, { maxTokens: 80 })));
  expect(drafted.map(({ tokens }) => tokens)).toEqual(expected.map(({ tokens }) => tokens));
  expect(most).toBeLessThanOrEqual(7);
  expect(most).toBeGreaterThan(4);
  await harness.settle();
});

test("memory that cannot go back is never drafted for", async () => {
  const harness = new EngineHarness(drafting({ nextToken: editor, resume: "frontier" }), { draftTokens: 6 });
  const { result } = await harness.run("r", promptOf(3, 80), { maxTokens: 60 });
  expect(result).toMatchObject({ draftedTokens: 0, outputTokens: 60 });
});
