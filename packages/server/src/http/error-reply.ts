/** Anything that was thrown on the way to an answer, as the error that a client sees. */

import type { Socket } from "node:net";
import { CodedError, type ErrorCode, formatBytes, newRequestId } from "@kvasir/kit";
import { type ApiError, openAiErrorBody, retryAfterSecondsOf, statusOf } from "@kvasir/wire";
import type { FastifyReply } from "fastify";
import { discardBody, discardsBody } from "./body-discard.ts";
import type { ServerOptions } from "./server-options.ts";

type Limits = Pick<ServerOptions, "bodyLimitBytes" | "headerLimitBytes" | "requestTimeoutMs">;

/** @returns the error to send; `internal_error` for what is a bug of ours */
export function toCodedError(error: unknown, limits: Limits): CodedError {
  if (error instanceof CodedError) return error;
  const code = frameworkCode(error);
  switch (code) {
    case "FST_ERR_CTP_BODY_TOO_LARGE":
      return new CodedError(
        "body_too_large",
        `The body is larger than ${formatBytes(limits.bodyLimitBytes)}. Send less, or raise the server's body limit.`,
      );
    case "FST_ERR_CTP_INVALID_MEDIA_TYPE":
    case "FST_ERR_CTP_INVALID_TYPE":
      return unsupportedMediaType("");
    case "FST_ERR_CTP_INVALID_CONTENT_LENGTH":
      return new CodedError("invalid_value", "The body's length is not what Content-Length says.");
    case "ECONNRESET":
      return new CodedError("invalid_http", "The connection ended before the body did.");
    case "FST_ERR_BAD_URL":
      return new CodedError("invalid_value", "The path of the URL is not percent-encoded UTF-8.");
    default:
      return internalError(error);
  }
}

/** What a client sees of a bug of ours. */
export function internalError(cause: unknown): CodedError {
  return new CodedError("internal_error", "Something went wrong in the server; its log has more under this x-request-id.", {
    cause,
  });
}

export function unsupportedMediaType(given: string): CodedError {
  const subject = given === "" ? "The body's type is not supported" : `${given.slice(0, 80)} is not supported`;
  return new CodedError(
    "unsupported_media_type",
    `${subject}. Send JSON in UTF-8, uncompressed, with \`Content-Type: application/json\`.`,
  );
}

export async function sendError(reply: FastifyReply, error: ApiError): Promise<void> {
  const retryAfter = retryAfterSecondsOf(error);
  if (retryAfter !== null) void reply.header("retry-after", String(retryAfter));
  if (!reply.request.raw.complete) {
    // The framework would close the connection; see body-discard.ts.
    void reply.removeHeader("connection");
    discardBody(reply.request.raw, reply.server.initialConfig.bodyLimit ?? 0);
  }
  await reply.code(statusOf(error)).type("application/json; charset=utf-8").send(openAiErrorBody(error));
}

/** Answers what Node's parser refused; there is no request then, only a socket. */
export function answerUnparsed(error: Error, socket: Socket, limits: Limits): void {
  // ECONNRESET: the client has gone, and nobody reads an answer. A request that was answered gets no second answer.
  if (!socket.writable || frameworkCode(error) === "ECONNRESET" || discardsBody(socket)) {
    socket.destroy();
    return;
  }
  const coded = unparsedError(frameworkCode(error), limits);
  const body = JSON.stringify(openAiErrorBody(coded));
  const status = statusOf(coded);
  const head = [
    `HTTP/1.1 ${status} ${STATUS_TEXT[status] ?? "Bad Request"}`,
    "content-type: application/json; charset=utf-8",
    `content-length: ${Buffer.byteLength(body)}`,
    `x-request-id: ${newRequestId("req_")}`,
    "connection: close",
  ];
  socket.end(`${head.join("\r\n")}\r\n\r\n${body}`);
}

const STATUS_TEXT: Readonly<Record<number, string>> = {
  400: "Bad Request",
  408: "Request Timeout",
  431: "Request Header Fields Too Large",
};

function unparsedError(code: string, limits: Limits): CodedError {
  const byCode: Readonly<Record<string, readonly [ErrorCode, string]>> = {
    HPE_HEADER_OVERFLOW: [
      "headers_too_large",
      `The headers are larger than ${formatBytes(limits.headerLimitBytes)}. Send fewer or shorter ones.`,
    ],
    ERR_HTTP_REQUEST_TIMEOUT: [
      "request_timeout",
      `The request did not arrive within ${limits.requestTimeoutMs / 1000} s. Send it faster, or in one piece.`,
    ],
  };
  const [errorCode, message] = byCode[code] ?? ["invalid_http", "The bytes are not a valid HTTP/1.1 request."];
  return new CodedError(errorCode, message);
}

function frameworkCode(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";
}
