/** The `kvasir` command. */

import { runCommand } from "./command.ts";
import { hostContext } from "./context.ts";

process.exitCode = await runCommand(process.argv.slice(2), hostContext());
