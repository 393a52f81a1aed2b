/** What is certain to fail is refused before any process starts, with the numbers that say why. */

import { totalmem } from "node:os";
import { CodedError, formatBytes, formatCount } from "@kvasir/kit";
import { knownArchitectures } from "./architectures.ts";
import type { GgufFacts } from "./gguf-facts.ts";

/** Memory that this process may use: the machine's, or the limit of its container where that is lower. */
export function usableMemoryBytes(): number {
  const constrained = process.constrainedMemory();
  return constrained > 0 ? Math.min(totalmem(), constrained) : totalmem();
}

/**
 * @param path names the model in errors
 * @param memoryBytes memory that can hold the weights: the host's, plus that of devices they are loaded on
 * @throws CodedError model_architecture_unknown, model_too_large
 */
export function checkRunnable(path: string, facts: GgufFacts, memoryBytes: number): void {
  if (!knownArchitectures.has(facts.architecture)) {
    throw new CodedError(
      "model_architecture_unknown",
      `${path} has the architecture "${facts.architecture}", which llama.cpp v0.5.0 does not load. ` +
        `Known are: ${[...knownArchitectures].join(", ")}`,
    );
  }
  if (facts.tensorBytes > memoryBytes) {
    throw new CodedError(
      "model_too_large",
      `${path} has ${formatBytes(facts.tensorBytes)} of weights (${formatCount(facts.tensorBytes)} bytes, ${facts.fileType}), ` +
        `this machine has ${formatBytes(memoryBytes)} of memory for them (${formatCount(memoryBytes)} bytes); ` +
        "use a smaller model or a stronger quantization",
    );
  }
}
