export * from "./architectures.ts";
export * from "./catalogue.ts";
export * from "./chat-template.ts";
export { type KvType, kvTypeNames } from "./ggml-types.ts";
export * from "./gguf-facts.ts";
export type { Environment } from "./hub-environment.ts";
export type { LayerFacts, LayerMemory, ModelLayers } from "./layer-facts.ts";
export * from "./memory-size.ts";
export { checkRunnable, usableMemoryBytes } from "./model-checks.ts";
export { cacheFolder, type ModelOptions } from "./model-options.ts";
export * from "./model-reference.ts";
export {
  formatProgress,
  type OnProgress,
  type ProgressOutput,
  type ProgressReporter,
  progressReporter,
  type PullProgress,
} from "./pull-progress.ts";
export type { RecurrentFacts } from "./recurrent-facts.ts";
export * from "./resolve-model.ts";
export * from "./stored-models.ts";
export type { ChatTemplateSources, SpecialToken, TokenizerFacts } from "./tokenizer-facts.ts";
