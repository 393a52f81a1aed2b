/** The one place where what a client left out becomes a number. */

import type { SamplingSettings } from "@kvasir/engine";
import type { SamplingOptions } from "@kvasir/wire";

export type SamplingDefaults = Omit<SamplingSettings, "logitBias" | "seed">;

/** What local servers use when neither client nor model says anything. */
export const localSamplingDefaults: SamplingDefaults = {
  temperature: 0.8,
  topK: 40,
  topP: 0.95,
  minP: 0.05,
  typicalP: 1,
  repeatPenalty: 1,
  repeatLastN: 64,
  frequencyPenalty: 0,
  presencePenalty: 0,
};

/**
 * @param defaults the model's own where its file has some, else `localSamplingDefaults`
 * @param seed used when the client gave none
 */
export function resolveSampling(options: SamplingOptions, defaults: SamplingDefaults, seed: number): SamplingSettings {
  return { ...defaults, logitBias: [], seed, ...options };
}
