/**
 * The command line: which words there are, which flags they take, and which function does the work. Each command loads its own
 * modules, so that `status` does not wait for what only `serve` needs.
 */

import { CodedError } from "@kvasir/kit";
import { Command, CommanderError, InvalidArgumentError, Option } from "commander";
import { flagName, optionKeys, options, variableName } from "./config/options.ts";
import { type ConfigurationInput, type ResolvedConfiguration, resolveConfiguration } from "./config/resolve-configuration.ts";
import type { CommandContext } from "./context.ts";
import { exitCodeOf } from "./exit-code.ts";
import { version } from "./version.ts";

/** Returns the exit code: see `exit-code.ts`; `status` has 3 for "nothing runs". */
export async function runCommand(argv: readonly string[], context: CommandContext): Promise<number> {
  let exitCode = 0;
  const program = createProgram(context, (code) => {
    exitCode = code;
  });
  try {
    await program.parseAsync([...argv], { from: "user" });
    return exitCode;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    if (!(error instanceof CodedError)) throw error;
    context.stderr.write(`kvasir: ${error.message}\n`);
    return exitCodeOf(error);
  }
}

function createProgram(context: CommandContext, exitWith: (code: number) => void): Command {
  const program = new Command("kvasir")
    .description("a local inference server for coding agents")
    .version(version, "-V, --version", "print the version")
    .helpOption("-h, --help", "print this help")
    .configureOutput({
      writeOut: (text) => void context.stdout.write(text),
      writeErr: (text) => void context.stderr.write(text),
    })
    .showHelpAfterError("`kvasir --help` lists the commands, `kvasir COMMAND --help` the flags of one.")
    .exitOverride();

  withConfiguration(program.command("serve").description("run a server in this terminal until Ctrl-C"))
    .addOption(new Option("--detached-log <file>").hideHelp())
    .action(async (_, command: Command) => {
      const given = configured(command, context);
      if (given.printOnly) return printConfiguration(given, context);
      const { serve } = await import("./commands/serve.ts");
      return exitWith(await serve(given.configuration, command.getOptionValue("detachedLog") ?? null, context));
    });

  withConfiguration(program.command("start").description("start a server in the background and wait until it is ready"))
    .option("--no-wait", "do not wait until it is ready")
    .action(async (_, command: Command) => {
      const given = configured(command, context);
      if (given.printOnly) return printConfiguration(given, context);
      const { start } = await import("./commands/start.ts");
      const waits = command.getOptionValue("wait") !== false;
      return exitWith(await start(given.configuration, { waits, flags: given.flags, file: given.file }, context));
    });

  withPort(program.command("stop").description("end a server: requests that run may finish first"))
    .option("--now", "cut the requests that run", false)
    .option("--all", "end all servers", false)
    .action(async (flags: { port?: number; now: boolean; all: boolean }) => {
      const { stop } = await import("./commands/stop.ts");
      await stop({ ...flags, port: flags.port ?? null }, context);
    });

  withPort(program.command("status").description("show the servers that run: model, uptime, load, queue, address"))
    .option("--json", "print JSON", false)
    .action(async (flags: { port?: number; json: boolean }) => {
      const { status } = await import("./commands/status.ts");
      exitWith(await status({ port: flags.port ?? null, asJson: flags.json }, context));
    });

  withPort(program.command("logs").description("show the messages of a server in the background"))
    .option("-f, --follow", "go on until the server ends", false)
    .option("-n, --lines <number>", "lines to show from the end", wholeNumber(0, 1_000_000), 100)
    .action(async (flags: { port?: number; follow: boolean; lines: number }) => {
      const { logs } = await import("./commands/logs.ts");
      await logs({ ...flags, port: flags.port ?? null }, context);
    });

  program
    .command("pull")
    .description("fetch a model, or look for a newer version of it")
    .argument("<model>", options.model.help)
    .action(async (model: string) => {
      const { pull } = await import("./commands/pull.ts");
      await pull(model, context);
    });

  const models = program.command("models").description("list the models that are here and those that can be had by name");
  models.option("--json", "print JSON", false).action(async (flags: { json: boolean }) => {
    const { showModels } = await import("./commands/models.ts");
    await showModels(flags.json, context);
  });
  models
    .command("rm")
    .description("remove a model from the caches")
    .argument("<name>", "as `kvasir models` shows it")
    .action(async (name: string) => {
      const { removeStoredModel } = await import("./commands/models.ts");
      await removeStoredModel(name, context);
    });

  addCacheCommands(program, context, exitWith);

  withConfiguration(program.command("doctor").description("check what a start needs and say what to do")).action(
    async (_, command: Command) => {
      const { doctor } = await import("./commands/doctor.ts");
      exitWith((await doctor(configured(command, context).configuration, context)) ? 0 : 1);
    },
  );
  return program;
}

function addCacheCommands(program: Command, context: CommandContext, exitWith: (code: number) => void): void {
  const cache = program.command("cache").description("the sessions that servers keep on disk");
  const withFolder = (name: string, description: string): Command =>
    cache
      .command(name)
      .description(description)
      .option("--disk-cache-folder <folder>", "default: prefixes in the cache folder");
  const load = () => import("./commands/cache.ts");
  withFolder("show", "what is stored, for which models, and who uses it").action(
    async (flags: { diskCacheFolder?: string }) => {
      const { cacheFolderOf, showCache } = await load();
      showCache(cacheFolderOf(flags.diskCacheFolder ?? null, context), context);
    },
  );
  withFolder("clear", "remove all of it").action(async (flags: { diskCacheFolder?: string }) => {
    const { cacheFolderOf, clearStoredSessions } = await load();
    clearStoredSessions(cacheFolderOf(flags.diskCacheFolder ?? null, context), context);
  });
  withFolder("verify", "read every page and compare its checksums")
    .option("--remove", "remove what is bad", false)
    .action(async (flags: { diskCacheFolder?: string; remove: boolean }) => {
      const { cacheFolderOf, verifyStoredSessions } = await load();
      const folder = cacheFolderOf(flags.diskCacheFolder ?? null, context);
      exitWith((await verifyStoredSessions(folder, flags.remove, context)) ? 0 : 1);
    });
}

/** Every option of the configuration as a flag. Their values stay texts here: one schema checks them, wherever they come from. */
function withConfiguration(command: Command): Command {
  command.option(
    "--config <FILE>",
    "JSON file with options by their keys (default: ~/.config/kvasir/config.json when it is there)",
  );
  command.option("--print-config", "print every option with its value and where it comes from, and end");
  for (const key of optionKeys) {
    const { placeholder, help, defaultValue, isAutomatic } = options[key];
    const flag = placeholder === null ? `--${flagName(key)}` : `--${flagName(key)} <${placeholder}>`;
    const isPlain = typeof defaultValue === "string" || typeof defaultValue === "number";
    const shownDefault = isAutomatic ? "auto" : isPlain ? String(defaultValue) : null;
    command.addOption(
      new Option(flag, `${help}${shownDefault === null ? "" : ` (default: ${shownDefault})`} [${variableName(key)}]`),
    );
  }
  return command;
}

interface Configured {
  readonly configuration: ResolvedConfiguration;
  readonly printOnly: boolean;
  readonly flags: ConfigurationInput["flags"];
  readonly file: string | undefined;
}

function configured(command: Command, { environment }: CommandContext): Configured {
  const given = optionKeys.filter((key) => command.getOptionValueSource(key) === "cli");
  const flags: ConfigurationInput["flags"] = Object.fromEntries(given.map((key) => [key, command.getOptionValue(key)]));
  const file: string | undefined = command.getOptionValue("config");
  const configuration = resolveConfiguration({ flags, environment, file });
  return { configuration, printOnly: command.getOptionValue("printConfig") === true, flags, file };
}

async function printConfiguration({ configuration }: Configured, context: CommandContext): Promise<void> {
  const { printConfiguration } = await import("./commands/print-config.ts");
  await printConfiguration(configuration, context);
}

function withPort(command: Command): Command {
  return command.option("--port <port>", "the server on this port (default: the only one that runs)", wholeNumber(1, 65_535));
}

function wholeNumber(least: number, most: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (/^\d+$/.test(text) && value >= least && value <= most) return value;
    throw new InvalidArgumentError(`It must be a whole number from ${least} to ${most}.`);
  };
}
