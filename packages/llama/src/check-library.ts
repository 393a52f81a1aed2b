/** All checks of the library at once, for `kvasir doctor` and for tests. */

import { type Clock, systemClock } from "@kvasir/kit";
import { type LibraryOptions, openLibrary } from "./library.ts";
import type { Verification } from "./library-hashes.ts";
import { loadModel } from "./model.ts";
import { type RoundTrip, roundTrip } from "./round-trip.ts";
import { Vocabulary } from "./vocabulary.ts";

export interface LibraryCheckOptions {
  readonly library?: LibraryOptions;
  /** A model to compute four tokens with; without one the round trip is left out. */
  readonly roundTripModel?: string;
  readonly threads?: number;
  readonly clock?: Clock;
}

export interface LibraryReport {
  readonly directory: string;
  readonly version: string;
  readonly verification: Verification;
  readonly cpuVariant: string;
  /** Names and descriptions of the GPUs that it computes on. */
  readonly gpus: readonly string[];
  readonly gpuProblem: string | null;
  /** Whether the model's own draft layers (MTP) can be driven. */
  readonly hasNextn: boolean;
  readonly roundTrip: RoundTrip | null;
}

/**
 * @throws CodedError library_missing or library_mismatch for the first check that fails, or an error of the model
 */
export async function checkLibrary(options: LibraryCheckOptions = {}): Promise<LibraryReport> {
  const library = openLibrary(options.library);
  const kernels = library.kernels();
  const report = {
    directory: library.location.directory,
    version: library.version,
    verification: library.verification,
    cpuVariant: kernels.cpuVariant,
    gpus: kernels.gpus.map((gpu) => `${gpu.name} ${gpu.description}`),
    gpuProblem: kernels.gpuProblem,
    hasNextn: library.hasNextn,
  };
  if (options.roundTripModel === undefined) return { ...report, roundTrip: null };
  const model = await loadModel(library, { modelPath: options.roundTripModel, vocabOnly: false, gpuLayers: 0 });
  try {
    const settings = {
      threads: options.threads ?? 1,
      threadPoll: 0,
      keyType: "f16",
      valueType: "f16",
      offload: false,
    } as const;
    const result = await roundTrip(model, settings, new Vocabulary(model).size, options.clock ?? systemClock);
    return { ...report, roundTrip: result };
  } finally {
    model.close();
  }
}
