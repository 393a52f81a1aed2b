/** One error catalogue, rendered in the form of each protocol. This file has OpenAI's. */

import { type ErrorCode, type ErrorKind, errorCatalogue } from "@kvasir/kit";

/** A `CodedError`, or what crosses a process border in its place. */
export interface ApiError {
  readonly code: ErrorCode;
  readonly message: string;
  readonly param?: string | undefined;
}

export interface OpenAiErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string;
  };
}

export function openAiErrorBody({ code, message, param }: ApiError): OpenAiErrorBody {
  return { error: { message, type: openAiErrorType(statusOf({ code })), param: param ?? null, code } };
}

/** The HTTP status of an error that answers a request; a code that belongs to the start of the server gives 500. */
export function statusOf({ code }: Pick<ApiError, "code">): number {
  return errorCatalogue[code].status ?? 500;
}

/** Seconds for the `Retry-After` header, or null. */
export function retryAfterSecondsOf({ code }: Pick<ApiError, "code">): number | null {
  const kind: ErrorKind = errorCatalogue[code];
  return kind.retryAfterSeconds ?? null;
}

function openAiErrorType(status: number): string {
  if (status === 401) return "authentication_error";
  if (status === 403) return "permission_error";
  if (status === 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}
