/** 0 done, 1 failed, 2 the command line or the configuration is wrong. */

import { CodedError } from "@kvasir/kit";

export function exitCodeOf(error: unknown): number {
  return error instanceof CodedError && error.code === "invalid_configuration" ? 2 : 1;
}
