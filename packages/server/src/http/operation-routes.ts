/** What operators and probes ask: `/`, `/health`, `/ready`, `/metrics`. None of them waits for the engine. */

import type { EngineStatus } from "@kvasir/engine";
import { CodedError } from "@kvasir/kit";
import type { FastifyInstance } from "fastify";
import type { Generator } from "../generator.ts";
import type { ServerContext } from "./server-context.ts";

/** How long a scrape waits for the engine's numbers. */
const STATUS_WAIT_MS = 500;

export function addOperationRoutes(app: FastifyInstance, context: ServerContext): void {
  const { generator, metrics, clock } = context;

  app.get("/", async (_request, reply) => {
    await reply
      .type("text/plain; charset=utf-8")
      .send(
        [
          `Kvasir ${context.version}: a local inference server. It serves ${generator.model.id}.`,
          "",
          "POST /v1/chat/completions   POST /v1/completions   GET /v1/models",
          "POST /tokenize   POST /detokenize   GET /health   GET /ready   GET /metrics",
          "",
        ].join("\n"),
      );
    return reply;
  });

  // The process answers, whatever the engine does: that is all that "alive" says.
  app.get("/health", { config: { open: true } }, async () => ({
    status: "ok",
    state: generator.state,
    model: generator.model.id,
    version: context.version,
    instance_id: context.instanceId,
    uptime_seconds: Math.floor((clock.monotonicMs() - context.startedMs) / 1000),
    load_progress: generator.loadProgress,
    engine_restarts: generator.restarts,
    requests: metrics.requests.inFlight,
  }));

  app.get("/ready", async () => {
    const refusal = refusalOf(generator);
    if (refusal) throw refusal;
    return { status: "ready", model: generator.model.id };
  });

  app.get("/metrics", async (_request, reply) => {
    const text = await metrics.render(generator, await statusSoon(context));
    await reply.type(metrics.contentType).send(text);
    return reply;
  });
}

/** Why the generator cannot give a first token now; null when it can. */
export function refusalOf({ state, loadProgress }: Pick<Generator, "state" | "loadProgress">): CodedError | null {
  switch (state) {
    case "ready":
      return null;
    case "starting":
      return new CodedError(
        "engine_starting",
        `The model is loading (${Math.floor(loadProgress * 100)} %). Try again in a moment.`,
      );
    case "restarting":
      return new CodedError("engine_unavailable", "The engine is being restarted. Try again in a moment.");
    case "failed":
      return new CodedError("engine_unavailable", "The engine could not start; the server's log tells why.");
    case "stopping":
      return new CodedError("shutting_down", "The server is shutting down.");
  }
}

async function statusSoon({ generator, clock }: ServerContext): Promise<EngineStatus | null> {
  let stopTimer = (): void => {};
  const timeout = new Promise<null>((resolve) => {
    stopTimer = clock.startTimer(STATUS_WAIT_MS, () => resolve(null));
  });
  // An engine that is not there has no numbers; /metrics has the rest.
  const status = generator.status().catch(() => null);
  try {
    return await Promise.race([status, timeout]);
  } finally {
    stopTimer();
  }
}
