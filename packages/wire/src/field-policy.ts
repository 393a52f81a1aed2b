/**
 * What happens to a field of a request. Nothing is ignored in silence:
 *
 *   known     read by the schema
 *   harmless  accepted: it cannot change the answer (docs/serving.md lists them)
 *   neutral   a feature that is not there: accepted at the value that asks for nothing, refused by name otherwise
 *   other     refused by name, with the nearest known name
 *
 * A null is as good as a missing field, everywhere.
 */

import { CodedError } from "@kvasir/kit";

export interface NeutralField {
  /** Whether the value asks for nothing. */
  readonly isNeutral: (value: unknown) => boolean;
  /** Why any other value is refused, and the way out. */
  readonly reason: string;
}

export interface FieldPolicy {
  readonly known: readonly string[];
  readonly harmless: readonly string[];
  readonly neutral: Readonly<Record<string, NeutralField>>;
  /** Names that other servers use, and ours. */
  readonly aliases: Readonly<Record<string, string>>;
}

/** The object without its nulls. */
export function withoutNulls(fields: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}

/** @throws CodedError unsupported_field for the first field that would be ignored */
export function refuseUnsupported(fields: Readonly<Record<string, unknown>>, policy: FieldPolicy, at = ""): void {
  for (const [name, value] of Object.entries(fields)) {
    const param = at === "" ? name : `${at}.${name}`;
    const neutral = Object.hasOwn(policy.neutral, name) ? policy.neutral[name] : undefined;
    if (neutral) {
      if (!neutral.isNeutral(value)) throw unsupported(param, `${param} is not supported with this value: ${neutral.reason}`);
    } else if (!policy.known.includes(name) && !policy.harmless.includes(name)) {
      throw unsupported(param, `${param} is not a field of this request. ${suggestion(name, policy)}`);
    }
  }
}

export function unsupported(param: string, message: string): CodedError {
  return new CodedError("unsupported_field", message, { param });
}

function suggestion(name: string, policy: FieldPolicy): string {
  const alias = Object.hasOwn(policy.aliases, name) ? policy.aliases[name] : undefined;
  if (alias !== undefined) return `Use ${alias}.`;
  const names = [...policy.known, ...Object.keys(policy.neutral)];
  const nearest = names
    .map((known) => ({ known, distance: editDistance(name, known) }))
    .sort((a, b) => a.distance - b.distance)[0];
  if (nearest && nearest.distance <= Math.max(1, Math.floor(name.length / 4))) return `Did you mean ${nearest.known}?`;
  return "It would be ignored, so it is refused: leave it out.";
}

/** Levenshtein distance. Long names are cut: they are near nothing. */
function editDistance(left: string, right: string): number {
  const a = left.slice(0, 64);
  let previous = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let row = 1; row <= a.length; row++) {
    const current = [row];
    for (let column = 1; column <= right.length; column++) {
      const substitution = (previous[column - 1] ?? 0) + (a[row - 1] === right[column - 1] ? 0 : 1);
      current.push(Math.min(substitution, (previous[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1));
    }
    previous = current;
  }
  return previous[right.length] ?? right.length;
}
