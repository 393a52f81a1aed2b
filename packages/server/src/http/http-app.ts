/**
 * The HTTP application: limits, access, body parsing, error forms, routes. Knows nothing of ports; `app.inject` answers
 * without a socket.
 *
 *   request → id → closing? → Host → Origin / preflight → key → route? method? → body → handler
 */

import { type CodedError, newRequestId } from "@kvasir/kit";
import { parseJsonBody, statusOf } from "@kvasir/wire";
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from "fastify";
import { AccessRules } from "./access-rules.ts";
import { answerUnparsed, sendError, toCodedError, unsupportedMediaType } from "./error-reply.ts";
import { addModelRoutes } from "./model-routes.ts";
import { addOpenAiRoutes } from "./openai-routes.ts";
import { addOperationRoutes } from "./operation-routes.ts";
import { RouteTable } from "./route-table.ts";
import type { ServerContext } from "./server-context.ts";
import type { ServerOptions } from "./server-options.ts";

declare module "fastify" {
  interface FastifyContextConfig {
    /** Answered without a key. */
    open?: boolean;
    /** Set on routes whose refusals belong in the request log. */
    protocol?: string;
  }
}

/** How often Node looks for requests that are too slow. */
const TIMEOUT_CHECK_MS = 1_000;

const ID_PREFIXES: Readonly<Record<string, string>> = { "/v1/chat/completions": "chatcmpl-", "/v1/completions": "cmpl-" };

/** @param isClosing asked at each request: a server that closes takes no new ones */
export function createHttpApp(
  options: ServerOptions,
  context: ServerContext,
  refusal: () => CodedError | null,
): FastifyInstance {
  const access = new AccessRules(options);
  const routes = new RouteTable();
  const app = fastify({
    bodyLimit: options.bodyLimitBytes,
    requestTimeout: options.requestTimeoutMs,
    // An answer may take as long as it takes.
    connectionTimeout: 0,
    forceCloseConnections: false,
    return503OnClosing: false,
    requestIdHeader: false,
    genReqId: ({ url }) => newRequestId(ID_PREFIXES[pathOf(url ?? "")] ?? "req_"),
    routerOptions: { maxParamLength: 1024 },
    http: {
      maxHeaderSize: options.headerLimitBytes,
      headersTimeout: options.requestTimeoutMs,
      connectionsCheckingInterval: Math.min(TIMEOUT_CHECK_MS, options.requestTimeoutMs),
    },
    clientErrorHandler: (error, socket) => answerUnparsed(error, socket, options),
    frameworkErrors: (error, _request, reply) => void sendError(reply, toCodedError(error, options)),
  });

  const answerError = async (error: unknown, request: FastifyRequest, reply: FastifyReply): Promise<void> => {
    const coded = toCodedError(error, options);
    if (coded.code === "internal_error") context.onInternalError(error, request.id);
    const { protocol } = request.routeOptions.config;
    // Refused before it could be read as a generation request, so no trace follows it.
    if (protocol !== undefined) {
      context.log.write("rejected", request.id, { protocol, error_code: coded.code, http_status: statusOf(coded) });
      context.metrics.requests.unreadable(protocol, coded.code);
    }
    await sendError(reply, coded);
  };

  app.addHook("onRoute", (route) => routes.add(route.url, route.method));
  app.setErrorHandler(answerError);
  app.removeAllContentTypeParsers();
  app.addContentTypeParser("application/json", { parseAs: "buffer" }, async (request: FastifyRequest, bytes: Buffer) =>
    parseJsonBody(checkedBody(request, bytes)),
  );

  app.addHook("onRequest", async (request, reply) => {
    const { headers, method, routeOptions } = request;
    void reply.header("x-request-id", request.id).header("x-content-type-options", "nosniff");
    reply.raw.once("close", () => context.metrics.responded(routeOptions.url ?? "unknown", method, reply.raw.statusCode));
    const closing = refusal();
    if (closing) throw closing;
    access.checkHost(headers.host);
    if (access.checkOrigin(headers.origin, headers.host)) allowOrigin(request, reply);
    if (isPreflight(request)) {
      await reply.code(204).send();
      return reply;
    }
    if (!routeOptions.config.open) access.checkKey(headers);
    if (request.is404) {
      const path = pathOf(request.url);
      const allowed = routes.allowed(path);
      if (allowed.length > 0) void reply.header("allow", allowed.join(", "));
      throw routes.refusal(method, path);
    }
    return undefined;
  });

  addOpenAiRoutes(app, context);
  addModelRoutes(app, context);
  addOperationRoutes(app, context);
  return app;
}

function checkedBody(request: FastifyRequest, bytes: Buffer): Buffer {
  const type = request.headers["content-type"] ?? "";
  const charset = /;\s*charset="?([^";\s]+)/i.exec(type)?.[1] ?? "utf-8";
  if (!/^(?:utf-?8|us-ascii)$/i.test(charset)) throw unsupportedMediaType(type);
  const encoding = request.headers["content-encoding"] ?? "identity";
  if (encoding.toLowerCase() !== "identity") throw unsupportedMediaType(`Content-Encoding ${encoding}`);
  return bytes;
}

function isPreflight({ method, headers }: FastifyRequest): boolean {
  return method === "OPTIONS" && headers.origin !== undefined && headers["access-control-request-method"] !== undefined;
}

function allowOrigin({ headers }: FastifyRequest, reply: FastifyReply): void {
  void reply
    .header("access-control-allow-origin", headers.origin)
    .header("vary", "Origin")
    .header("access-control-expose-headers", "x-request-id, retry-after")
    .header("access-control-allow-methods", "GET, POST")
    .header(
      "access-control-allow-headers",
      headers["access-control-request-headers"] ?? "authorization, content-type, x-api-key",
    )
    .header("access-control-max-age", "600");
  // A public page that calls a private address asks for this too.
  if (headers["access-control-request-private-network"] === "true")
    void reply.header("access-control-allow-private-network", "true");
}

function pathOf(url: string): string {
  const end = url.search(/[?#]/);
  return end < 0 ? url : url.slice(0, end);
}
