/** The one error class for what a user can cause or must know. Anything else that is thrown is a bug of ours. */

import { type ErrorCode, type ErrorKind, errorCatalogue } from "./error-catalogue.ts";

export interface CodedErrorDetails {
  /** The request field or option the error is about, for example `messages[2].role`. */
  readonly param?: string;
  readonly cause?: unknown;
}

export class CodedError extends Error {
  override readonly name = "CodedError";
  readonly code: ErrorCode;
  readonly param: string | undefined;

  /** @param message the value, the rule and the way out, in one or two sentences */
  constructor(code: ErrorCode, message: string, details: CodedErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.param = details.param;
  }

  get kind(): ErrorKind {
    return errorCatalogue[this.code];
  }
}

/** What crosses a process border in place of a `CodedError`. */
export interface CodedErrorRecord {
  readonly code: ErrorCode;
  readonly message: string;
  readonly param?: string;
}

export function toErrorRecord(error: unknown): CodedErrorRecord {
  if (!(error instanceof CodedError)) return { code: "internal_error", message: messageOf(error) };
  return { code: error.code, message: error.message, ...(error.param === undefined ? {} : { param: error.param }) };
}

export function fromErrorRecord(record: CodedErrorRecord): CodedError {
  return new CodedError(record.code, record.message, record.param === undefined ? {} : { param: record.param });
}

/** The message of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
