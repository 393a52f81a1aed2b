/**
 * A server on a port. `startServer` opens it; its closer stops listening at once, lets the requests in flight end for a while,
 * then ends what is left with an error of its own, and returns when no connection is open.
 */

import type { AddressInfo } from "node:net";
import { type Clock, CodedError, newRequestId, type StopTimer } from "@kvasir/kit";
import type { FastifyInstance } from "fastify";
import type { Generator } from "../generator.ts";
import { RequestLog, type RecordWriter } from "../observe/request-log.ts";
import { ServerMetrics } from "../observe/server-metrics.ts";
import { ActiveRequests } from "./active-requests.ts";
import { createHttpApp } from "./http-app.ts";
import type { ServerContext } from "./server-context.ts";
import type { ServerOptions } from "./server-options.ts";

export interface ServerParts {
  readonly generator: Generator;
  readonly clock: Clock;
  readonly requestLog: RecordWriter;
  readonly onInternalError: (error: unknown, requestId: string) => void;
}

export interface ServerAddress {
  readonly host: string;
  readonly port: number;
  /** `http://127.0.0.1:8484` */
  readonly url: string;
}

export interface RunningServer {
  readonly address: ServerAddress;
  /**
   * Requests in flight have `drainMs` to end; then they fail with shutting_down. Called again, a smaller `drainMs` shortens the
   * wait. The parts that were passed in stay open: whoever opened them closes them.
   */
  close(options: { readonly drainMs: number }): Promise<void>;
}

/** How long a client that is cut has to take its error. */
const FAREWELL_MS = 1_000;
const IDLE_CHECK_MS = 50;

/** @throws CodedError port_in_use, invalid_configuration */
export async function startServer(options: ServerOptions, parts: ServerParts): Promise<RunningServer> {
  const server = new HttpServer(options, parts);
  await server.listen();
  return server;
}

class HttpServer implements RunningServer {
  readonly #app: FastifyInstance;
  readonly #options: ServerOptions;
  readonly #clock: Clock;
  readonly #active = new ActiveRequests();
  #address: ServerAddress | null = null;
  #closed: Promise<void> | null = null;
  #stopTimer: StopTimer = () => {};

  constructor(options: ServerOptions, { generator, clock, requestLog, onInternalError }: ServerParts) {
    const instanceId = newRequestId("srv_");
    const context: ServerContext = {
      generator,
      clock,
      log: new RequestLog(requestLog, instanceId, () => clock.wallMs()),
      metrics: new ServerMetrics(generator.model.id),
      active: this.#active,
      version: options.version,
      instanceId,
      startedMs: clock.monotonicMs(),
      onInternalError,
    };
    this.#options = options;
    this.#clock = clock;
    this.#app = createHttpApp(options, context, () => (this.#closed ? shuttingDown() : null));
  }

  get address(): ServerAddress {
    if (!this.#address) throw new CodedError("internal_error", "The server does not listen yet.");
    return this.#address;
  }

  async listen(): Promise<void> {
    const { host, port } = this.#options;
    try {
      await this.#app.listen({ host, port });
    } catch (cause) {
      await this.#app.close();
      throw listenError(cause, host, port);
    }
    const bound = this.#app.server.address() as AddressInfo;
    const shown = host.includes(":") ? `[${host}]` : host;
    this.#address = { host, port: bound.port, url: `http://${shown}:${bound.port}` };
  }

  close({ drainMs }: { readonly drainMs: number }): Promise<void> {
    if (drainMs > 0) this.#clock.startTimer(drainMs, () => this.#cut());
    else this.#cut();
    this.#closed ??= this.#end();
    return this.#closed;
  }

  async #end(): Promise<void> {
    const { server } = this.#app;
    // Listening ends now; connections without a request are closed, the others when their answer is out.
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    await this.#active.idle();
    this.#closeIdle();
    await closed;
    this.#stopTimer();
    await this.#app.close();
  }

  /** Node closes the connections that are idle at the moment of the call; an answer may still be on its way out. */
  #closeIdle(): void {
    const { server } = this.#app;
    server.closeIdleConnections();
    this.#stopTimer = this.#clock.startTimer(IDLE_CHECK_MS, () => this.#closeIdle());
  }

  /** Ends what still runs; a client that does not even read its error is disconnected. */
  #cut(): void {
    this.#active.abortAll(shuttingDown());
    this.#clock.startTimer(FAREWELL_MS, () => this.#app.server.closeAllConnections());
  }
}

function shuttingDown(): CodedError {
  return new CodedError("shutting_down", "The server is shutting down. Send the request again when it is back.");
}

function listenError(cause: unknown, host: string, port: number): unknown {
  const code = cause instanceof Error && "code" in cause ? cause.code : null;
  if (code === "EADDRINUSE") {
    return new CodedError("port_in_use", `Port ${port} on ${host} is taken. Stop what holds it, or choose another port.`, {
      cause,
    });
  }
  if (code === "EACCES" || code === "EADDRNOTAVAIL" || code === "ENOTFOUND") {
    return new CodedError(
      "invalid_configuration",
      `The address ${host}:${port} cannot be listened on (${code}). Choose another one.`,
      { cause },
    );
  }
  return cause;
}
