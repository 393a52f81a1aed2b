import fc from "fast-check";
import { expect, test } from "vitest";
import { unavoidableByDepth, unavoidableTokens } from "../src/replay/prefix-tree.ts";

const prompts = fc.array(fc.array(fc.integer({ min: 0, max: 2 }), { maxLength: 12 }), { maxLength: 12 });

/** Every prefix written out, as text, in a set. */
function distinctPrefixes(all: readonly (readonly number[])[]): string[] {
  return [...new Set(all.flatMap((prompt) => prompt.map((_, depth) => prompt.slice(0, depth + 1).join(","))))];
}

test("counts-every-distinct-prefix-once", () => {
  fc.assert(
    fc.property(prompts, (all) => {
      expect(unavoidableTokens(all)).toBe(distinctPrefixes(all).length);
    }),
  );
});

test("counts-by-depth-what-each-depth-holds", () => {
  fc.assert(
    fc.property(prompts, (all) => {
      const byDepth = unavoidableByDepth(all);
      const naive = Map.groupBy(distinctPrefixes(all), (prefix) => prefix.split(",").length - 1);
      expect(byDepth).toEqual(Array.from({ length: naive.size }, (_, depth) => naive.get(depth)?.length ?? 0));
    }),
  );
});

test("does-not-depend-on-the-order-of-prompts", () => {
  fc.assert(
    fc.property(prompts, (all) => {
      expect(unavoidableTokens([...all].reverse())).toBe(unavoidableTokens(all));
    }),
  );
});
