/** The tiny random models of the repository; `fixtures/models/README.md` says what each is for. */

import { fileURLToPath } from "node:url";

export type TinyModel = "tiny-qwen3" | "tiny-gemma3" | "tiny-deepseek2" | "tiny-qwen35" | "tiny-moe" | "tiny-draft";

export function tinyModelPath(model: TinyModel): string {
  return fileURLToPath(new URL(`../../../../fixtures/models/${model}.gguf`, import.meta.url));
}
