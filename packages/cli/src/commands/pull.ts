/** `kvasir pull MODEL`: loads a model into the cache before somebody waits for it. */

import { progressReporter, pullModel, summarizeModel } from "@kvasir/models";
import type { CommandContext } from "../context.ts";

export async function pull(reference: string, context: CommandContext): Promise<void> {
  const interrupted = new AbortController();
  const interrupt = (): void => interrupted.abort(new Error("interrupted"));
  process.once("SIGINT", interrupt);
  process.once("SIGTERM", interrupt);
  const progress = progressReporter(context.stderr, context.clock);
  try {
    const model = await pullModel(reference, {
      cacheDir: context.cacheDir,
      env: context.environment,
      onProgress: progress.onProgress,
      signal: interrupted.signal,
      clock: context.clock,
    });
    progress.finish();
    context.stdout.write(`${summarizeModel(model)}\n${model.path}\n`);
  } finally {
    progress.finish();
    process.off("SIGINT", interrupt);
    process.off("SIGTERM", interrupt);
  }
}
