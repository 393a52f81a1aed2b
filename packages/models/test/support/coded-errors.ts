/** The error of a promise or call that must fail with a `CodedError`. */

import { CodedError } from "@kvasir/kit";

export async function codedErrorOf(action: () => unknown): Promise<CodedError> {
  try {
    await action();
  } catch (error) {
    if (error instanceof CodedError) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}
