/** The command as a function, for whoever embeds it; `main.ts` is the program. */

export { runCommand } from "./command.ts";
export { type CommandContext, hostContext } from "./context.ts";
