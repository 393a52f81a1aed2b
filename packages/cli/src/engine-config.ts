/** What the server process tells its engine child to open. Plain data for structured clone. */

import type { EngineOptions } from "@kvasir/engine";
import type { LibraryOptions } from "@kvasir/llama";
import type { Configuration } from "./config/options.ts";

export interface EngineConfig {
  readonly library: LibraryOptions;
  readonly modelPath: string;
  readonly laneCount: number;
  readonly laneTokens: number;
  readonly batchTokens: number;
  /** Rows of one step that may ask for logits. */
  readonly outputRows: number;
  readonly threads: number;
  readonly kvDtype: Configuration["kvDtype"];
  /** -1: all. */
  readonly gpuLayers: number;
  /** Bytes of host memory for stored prefixes. */
  readonly hostCacheBytes: number;
  /** null: no disk tier. */
  readonly disk: { readonly folder: string; readonly budgetBytes: number } | null;
  readonly engine: EngineOptions;
}
