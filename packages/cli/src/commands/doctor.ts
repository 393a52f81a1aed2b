/** `kvasir doctor`: looks at everything a start needs and says what to do. */

import type { ResolvedConfiguration } from "../config/resolve-configuration.ts";
import type { CommandContext } from "../context.ts";
import { diagnose } from "../machine/diagnosis.ts";

/** Returns whether a server can start. */
export async function doctor({ values, file }: ResolvedConfiguration, context: CommandContext): Promise<boolean> {
  context.stdout.write(`ok    configuration  ${file ?? "no file"}\n`);
  const findings = await diagnose(values, context);
  for (const { name, state, detail, wayOut } of findings) {
    context.stdout.write(`${state.padEnd(5)} ${name.padEnd(13)}  ${detail}\n`);
    if (wayOut !== null) context.stdout.write(`${" ".repeat(21)}→ ${wayOut}\n`);
  }
  return findings.every(({ state }) => state !== "FAIL");
}
