/**
 * One option of the command: how its value looks as text (flag, variable) and as JSON (configuration file), what is allowed,
 * and what it is when nobody says anything. Text is turned into the JSON form first; one schema checks both.
 */

import { z } from "zod";

export interface OptionSpec<Value> {
  readonly schema: z.ZodType<Value>;
  readonly defaultValue: Value;
  /** What stands for the value in `--help`; null for a switch, which takes none. */
  readonly placeholder: string | null;
  readonly help: string;
  /** Never printed, only that it is set. */
  readonly isSecret: boolean;
  /** Whether null means "worked out by the program" rather than "not set". */
  readonly isAutomatic: boolean;
  /** The JSON form of a text. A text that has none comes back as it is, and the schema says what is wrong. */
  readonly fromText: (text: string) => unknown;
}

interface Documentation {
  readonly placeholder?: string;
  readonly isSecret?: boolean;
}

interface Parts<Value> extends Documentation {
  readonly schema: z.ZodType<Value>;
  readonly defaultValue: Value;
  readonly help: string;
  readonly fromText?: (text: string) => unknown;
  readonly isSwitch?: boolean;
  readonly isAutomatic?: boolean;
}

function option<Value>(parts: Parts<Value>): OptionSpec<Value> {
  return {
    schema: parts.schema,
    defaultValue: parts.defaultValue,
    placeholder: parts.isSwitch === true ? null : (parts.placeholder ?? "TEXT"),
    help: parts.help,
    isSecret: parts.isSecret ?? false,
    isAutomatic: parts.isAutomatic ?? false,
    fromText: parts.fromText ?? ((text) => text),
  };
}

const emptyText = "must not be empty";

export function text(defaultValue: string, help: string, documentation: Documentation = {}): OptionSpec<string> {
  return option({ schema: z.string("must be a text").min(1, emptyText), defaultValue, help, ...documentation });
}

/** A text that may be absent. */
export function optionalText(help: string, documentation: Documentation = {}): OptionSpec<string | null> {
  const schema: z.ZodType<string | null> = z.string("must be a text").min(1, emptyText).nullable();
  return option({ schema, defaultValue: null, help, ...documentation });
}

export function choice<const Value extends string>(
  values: readonly Value[],
  defaultValue: NoInfer<Value>,
  help: string,
): OptionSpec<Value> {
  const allowed: readonly unknown[] = values;
  const schema = z.custom<Value>((value) => allowed.includes(value), `must be one of ${values.join(", ")}`);
  return option<Value>({ schema, defaultValue, help, placeholder: values.join("|") });
}

/** A switch: present or absent as a flag, true or false elsewhere. */
export function toggle(help: string): OptionSpec<boolean> {
  const fromText = (value: string): unknown => {
    if (/^(true|1|yes)$/i.test(value)) return true;
    return /^(false|0|no|)$/i.test(value) ? false : value;
  };
  return option({ schema: z.boolean("must be true or false"), defaultValue: false, help, fromText, isSwitch: true });
}

export interface Bounds {
  readonly least: number;
  readonly most?: number;
}

export function integer(
  defaultValue: number,
  bounds: Bounds,
  help: string,
  documentation: Documentation = {},
): OptionSpec<number> {
  const parts = { schema: numberWithin(bounds, true), defaultValue, help, fromText: numberFromText };
  return option({ ...parts, placeholder: "NUMBER", ...documentation });
}

/** A number, or "auto" (null), which the program works out from the model and the machine. */
export function automatic(
  kind: "integer" | "number",
  bounds: Bounds,
  help: string,
  documentation: Documentation = {},
): OptionSpec<number | null> {
  const isInteger = kind === "integer";
  const rule = `${ruleOf(bounds, isInteger)} or auto`;
  const either = z.union([z.null(), z.literal("auto"), numberWithin(bounds, isInteger, rule)], rule);
  const schema: z.ZodType<number | null> = either.transform((value) => (value === "auto" ? null : value));
  const parts = { schema, defaultValue: null, help, fromText: numberFromText, isAutomatic: true };
  return option<number | null>({ ...parts, placeholder: "NUMBER", ...documentation });
}

/** Separated by commas as text, an array in a file. */
export function list(help: string, documentation: Documentation = {}): OptionSpec<readonly string[]> {
  const entries = z.array(z.string().min(1, "entries must not be empty"), "must be a list of texts");
  const schema: z.ZodType<readonly string[]> = entries.readonly();
  const fromText = (value: string): readonly string[] => (value === "" ? [] : value.split(",").map((entry) => entry.trim()));
  return option({ schema, defaultValue: [], help, fromText, placeholder: "LIST", ...documentation });
}

function numberWithin(bounds: Bounds, isInteger: boolean, rule = ruleOf(bounds, isInteger)): z.ZodType<number> {
  const { least, most = Number.MAX_SAFE_INTEGER } = bounds;
  const isWithin = (value: number): boolean => value >= least && value <= most && (!isInteger || Number.isSafeInteger(value));
  return z.number(rule).refine(isWithin, rule);
}

function ruleOf({ least, most }: Bounds, isInteger: boolean): string {
  const range = most === undefined ? `of at least ${least}` : `from ${least} to ${most}`;
  return `must be a ${isInteger ? "whole number" : "number"} ${range}`;
}

function numberFromText(value: string): unknown {
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(value) ? Number(value) : value;
}
