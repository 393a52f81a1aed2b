/** `--print-config`: the configuration as JSON, with the model's file where it is on this machine. Fetches and opens nothing. */

import { printableConfiguration } from "../config/print-configuration.ts";
import type { ResolvedConfiguration } from "../config/resolve-configuration.ts";
import type { CommandContext } from "../context.ts";
import { findModelFile } from "../machine/find-model.ts";
import { readApiKeys } from "../serve/api-keys.ts";

export async function printConfiguration(configuration: ResolvedConfiguration, context: CommandContext): Promise<void> {
  readApiKeys(configuration.values);
  const modelPath = await findModelFile(configuration.values.model, context);
  const printable = printableConfiguration(configuration, { modelPath, cacheDir: context.cacheDir });
  context.stdout.write(`${JSON.stringify(printable, null, 2)}\n`);
}
