/** Reads the options of a benchmark command; a bad value stops it with the value, the rule and the way out. */

import { CodedError } from "@kvasir/kit";

export interface NumberRule {
  readonly name: string;
  readonly least: number;
  readonly isInteger?: boolean;
}

export function readNumber(text: string, rule: NumberRule): number {
  const value = text.trim() === "" ? Number.NaN : Number(text);
  if (Number.isFinite(value) && value >= rule.least && (rule.isInteger === false || Number.isInteger(value))) return value;
  const kind = rule.isInteger === false ? "a number" : "a whole number";
  throw new CodedError("invalid_configuration", `--${rule.name} ${text} is not ${kind} of at least ${rule.least}.`);
}

/** `1024,256` */
export function readNumbers(text: string, rule: NumberRule): number[] {
  return text.split(",").map((item) => readNumber(item, rule));
}

/** Members of a closed list, comma-separated, in the list's order. */
export function readChoices<Choice extends string>(text: string, name: string, choices: readonly Choice[]): Choice[] {
  const wanted = text.split(",").map((item) => item.trim());
  const unknown = wanted.filter((item) => !choices.includes(item as Choice));
  if (unknown.length > 0)
    throw new CodedError(
      "invalid_configuration",
      `--${name} ${unknown.join(",")} is not known. Choose from ${choices.join(", ")}.`,
    );
  return choices.filter((choice) => wanted.includes(choice));
}
