/** Settings that change nothing, and what a test changes about them. */

import type { SamplingSettings } from "../src/index.ts";

const neutral: SamplingSettings = {
  temperature: 1,
  topK: 0,
  topP: 1,
  minP: 0,
  typicalP: 1,
  repeatPenalty: 1,
  repeatLastN: 64,
  frequencyPenalty: 0,
  presencePenalty: 0,
  logitBias: [],
  seed: 0,
};

export function settingsWith(changes: Partial<SamplingSettings> = {}): SamplingSettings {
  return { ...neutral, ...changes };
}
