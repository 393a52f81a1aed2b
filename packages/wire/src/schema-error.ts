/** Runs a schema and turns its first issue into the error that a client sees: the value, the rule, the field. */

import { CodedError } from "@kvasir/kit";
import type { z } from "zod";

const SHOWN_UNITS = 60;

/**
 * @param schema its messages are rules that finish the sentence "it must be …"
 * @param at the path of `value` in the request, for nested schemas
 * @throws CodedError missing_field or invalid_value
 */
export function parseWith<Schema extends z.ZodType>(schema: Schema, value: unknown, at = ""): z.output<Schema> {
  const result = schema.safeParse(value, { reportInput: true });
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const param = paramOf(at, issue?.path ?? []);
  throw invalidValue(param, issue?.input, issue?.message ?? "valid");
}

/** @param rule finishes the sentence "it must be …" */
export function invalidValue(param: string, value: unknown, rule: string): CodedError {
  if (value === undefined) return new CodedError("missing_field", `${param} is missing; it must be ${rule}.`, { param });
  const subject = param === "" ? "The body" : param;
  return new CodedError("invalid_value", `${subject} is ${show(value)}; it must be ${rule}.`, param === "" ? {} : { param });
}

/** `["messages", 2, "role"]` → `messages[2].role` */
export function paramOf(at: string, path: readonly PropertyKey[]): string {
  let param = at;
  for (const step of path) {
    if (typeof step === "number") param += `[${step}]`;
    else param += param === "" ? String(step) : `.${String(step)}`;
  }
  return param;
}

/** A value for an error message: short, never a whole prompt. */
function show(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  if (text.length <= SHOWN_UNITS) return text;
  if (Array.isArray(value)) return `an array of ${value.length} items`;
  if (typeof value === "object") return "an object";
  return `${text.slice(0, SHOWN_UNITS)}…`;
}
