/** `--print-config`: every option with its value and where that came from, as JSON, secrets hidden. */

import { redacted, redactRecord } from "@kvasir/kit";
import { type OptionKey, optionKeys, options } from "./options.ts";
import type { ResolvedConfiguration } from "./resolve-configuration.ts";

/** @param derived what follows from the configuration on this machine, shown beside it */
export function printableConfiguration(
  { values, sources, file }: ResolvedConfiguration,
  derived: object,
): Record<string, unknown> {
  const settings = optionKeys.map((key) => [key, { value: shownValue(key, values[key]), source: sources[key] }] as const);
  return { file, ...derived, settings: Object.fromEntries(settings) };
}

function shownValue(key: OptionKey, value: unknown): unknown {
  const { isSecret, isAutomatic } = options[key];
  if (value === null) return isAutomatic ? "auto" : null;
  return isSecret ? redacted : redactRecord(value);
}
