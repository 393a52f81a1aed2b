/**
 * Flags, `KVASIR_*` variables, configuration file, defaults, in this order, into one frozen record that remembers where each
 * value came from. Unknown keys and bad values stop the start, all of them named at once.
 */

import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import { CodedError, messageOf, redacted } from "@kvasir/kit";
import { type Configuration, flagName, type OptionKey, optionKeys, options, variableName } from "./options.ts";
import { suggest } from "./suggestion.ts";

export type Environment = Readonly<Record<string, string | undefined>>;
export type ValueSource = "flag" | "environment" | "file" | "default";

export interface ResolvedConfiguration {
  readonly values: Configuration;
  readonly sources: Readonly<Record<OptionKey, ValueSource>>;
  /** The configuration file that was read, or null. */
  readonly file: string | null;
}

export interface ConfigurationInput {
  /** Texts of the flags that were given, by option key; true for a switch. */
  readonly flags: Readonly<Partial<Record<OptionKey, string | true>>>;
  readonly environment: Environment;
  /** `--config`; undefined: `KVASIR_CONFIG`, else the usual place when there is a file. */
  readonly file?: string | undefined;
}

/** Variables of this name that are not options: places, and settings of tests and benchmarks. */
const otherVariables = /^KVASIR_(CACHE_DIR|CONFIG|PEERS_DIR|(TEST|CI|BENCH)_\w+)$/;

interface Given {
  readonly value: unknown;
  readonly source: ValueSource;
  /** How a person finds the value: a flag, a variable, or a key in a file. */
  readonly origin: string;
}

/** @throws CodedError invalid_configuration naming every value that is wrong, the rule, and what would be right */
export function resolveConfiguration(input: ConfigurationInput): ResolvedConfiguration {
  const problems: string[] = [];
  const file = configurationFile(input);
  const fromFile = file === null ? {} : readConfigurationFile(file, problems);
  findUnknownVariables(input.environment, problems);
  const values: Record<string, unknown> = {};
  const sources: Record<string, ValueSource> = {};
  for (const key of optionKeys) {
    const given = fromFlag(key, input) ?? fromVariable(key, input) ?? fromKey(key, fromFile, file) ?? fromDefault(key);
    const result = options[key].schema.safeParse(given.value);
    if (result.success) values[key] = result.data;
    else
      problems.push(`${given.origin} is ${shown(key, given.value)}; it ${result.error.issues[0]?.message ?? "is not allowed"}`);
    sources[key] = given.source;
  }
  if (problems.length > 0) throw invalid(problems);
  // Every key was set from its own schema above.
  const configuration = Object.freeze(values) as Configuration;
  return { values: configuration, sources: Object.freeze(sources) as Record<OptionKey, ValueSource>, file };
}

function fromFlag(key: OptionKey, { flags }: ConfigurationInput): Given | undefined {
  const value = flags[key];
  if (value === undefined) return undefined;
  return { value: value === true ? true : options[key].fromText(value), source: "flag", origin: `--${flagName(key)}` };
}

function fromVariable(key: OptionKey, { environment }: ConfigurationInput): Given | undefined {
  const name = variableName(key);
  const value = environment[name];
  if (value === undefined) return undefined;
  return { value: options[key].fromText(value), source: "environment", origin: name };
}

function fromKey(key: OptionKey, fromFile: Readonly<Record<string, unknown>>, file: string | null): Given | undefined {
  if (!Object.hasOwn(fromFile, key)) return undefined;
  return { value: fromFile[key], source: "file", origin: `"${key}" in ${file}` };
}

function fromDefault(key: OptionKey): Given {
  return { value: options[key].defaultValue, source: "default", origin: `the default of --${flagName(key)}` };
}

function configurationFile({ file, environment }: ConfigurationInput): string | null {
  const named = file ?? environment["KVASIR_CONFIG"];
  if (named !== undefined && named !== "") return resolve(named);
  const usual = join(environment["XDG_CONFIG_HOME"] || join(homedir(), ".config"), "kvasir", "config.json");
  try {
    readFileSync(usual);
    return usual;
  } catch {
    // Nobody wrote one.
    return null;
  }
}

function readConfigurationFile(file: string, problems: string[]): Record<string, unknown> {
  let content: unknown;
  try {
    content = JSON.parse(readFileSync(file, "utf8"));
  } catch (error) {
    throw invalid([`the configuration file ${file} cannot be read: ${messageOf(error)}; it must be a JSON object`]);
  }
  if (typeof content !== "object" || content === null || Array.isArray(content)) {
    throw invalid([`the configuration file ${file} holds ${JSON.stringify(content).slice(0, 40)}; it must be a JSON object`]);
  }
  for (const key of Object.keys(content)) {
    if (!Object.hasOwn(options, key)) problems.push(`"${key}" in ${file} is not an option${suggest(key, optionKeys)}`);
  }
  return { ...content };
}

function findUnknownVariables(environment: Environment, problems: string[]): void {
  const known = new Set(optionKeys.map(variableName));
  for (const name of Object.keys(environment)) {
    if (!name.startsWith("KVASIR_") || known.has(name) || otherVariables.test(name)) continue;
    problems.push(`the environment variable ${name} is not an option${suggest(name, [...known])}; unset it`);
  }
}

function shown(key: OptionKey, value: unknown): string {
  return options[key].isSecret ? redacted : JSON.stringify(value);
}

function invalid(problems: readonly string[]): CodedError {
  const [first = "", ...rest] = problems;
  const text =
    rest.length === 0
      ? `${first}.`
      : `${problems.length} settings are wrong:\n${problems.map((problem) => `  - ${problem}.`).join("\n")}`;
  return new CodedError("invalid_configuration", `${text} \`kvasir serve --help\` lists all options.`);
}
