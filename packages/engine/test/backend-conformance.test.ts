import { describe, expect, test } from "vitest";
import { ScriptedBackend, type ScriptedBackendOptions } from "../src/index.ts";
import { backendConformance } from "../src/testing/backend-conformance.ts";

const text = "naïve €5 𝄞";
const texts = [{ tokens: [...new TextEncoder().encode(text)], text }];

const variants: ReadonlyArray<[string, ScriptedBackendOptions]> = [
  ["that resumes anywhere", {}],
  ["that resumes at its frontier only", { resume: "frontier" }],
  ["that answers at once for short steps", { asyncFromRows: 20 }],
];

describe.each(variants)("a scripted backend %s", (_, options) => {
  const open = async (): Promise<ScriptedBackend> =>
    new ScriptedBackend({
      laneCount: 3,
      laneTokens: 128,
      batchTokens: 48,
      outputRows: 5,
      asyncFromRows: 0,
      microbatchRows: 8,
      ...options,
    });
  test.for(backendConformance({ open, toleranceShare: 0, texts }))("$name", async ({ run }) => {
    await expect(run()).resolves.toBeUndefined();
  });
});
