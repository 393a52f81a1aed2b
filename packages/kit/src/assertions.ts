/** Broken invariants are bugs of ours, never a user's mistake: they throw `InvariantError`. */

export class InvariantError extends Error {
  override readonly name = "InvariantError";
}

/** Throws when `condition` does not hold. The message carries the numbers. */
export function invariant(condition: unknown, message: string): asserts condition {
  if (!condition) throw new InvariantError(message);
}

/** Closes a union: a new member that a switch forgot is a compile error here. */
export function assertNever(value: never): never {
  throw new InvariantError(`unexpected value ${JSON.stringify(value)}`);
}
