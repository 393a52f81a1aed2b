/**
 * Answers one generation request, streamed or whole. Owns the request from its parsed form to its last byte: the signal that
 * the client has gone, the trace, the response.
 *
 *   refused before the first byte → an HTTP status     failed after it → an error event, and the stream ends without [DONE]
 *   client gone → the generation is cancelled at once, and read to its end for the numbers
 */

import {
  type ApiError,
  type Dialect,
  type GenerationEvent,
  OpenAiBody,
  OpenAiStream,
  openAiErrorBody,
  type ParsedRequest,
  type ResponseFacts,
  SSE_DONE,
} from "@kvasir/wire";
import type { FastifyReply } from "fastify";
import { RequestTrace } from "../observe/request-trace.ts";
import { awaitAcceptance, type EventSource } from "./acceptance.ts";
import { internalError, sendError } from "./error-reply.ts";
import { EventStream } from "./event-stream.ts";
import { LiveChoices } from "./live-choices.ts";
import type { ServerContext } from "./server-context.ts";

export async function replyWithGeneration(
  context: ServerContext,
  reply: FastifyReply,
  parsed: ParsedRequest,
  dialect: Dialect,
): Promise<void> {
  const { request, output } = parsed;
  const { controller, end } = context.active.begin();
  const response = reply.raw;
  const leave = (): void => {
    if (!response.writableFinished) controller.abort();
  };
  response.once("close", leave);
  if (response.destroyed) leave();
  const trace = new RequestTrace(request, output.stream, {
    log: context.log,
    metrics: context.metrics.requests,
    clock: context.clock,
  });
  try {
    const events = traced(context.generator.generate(request, controller.signal), trace);
    const facts: ResponseFacts = {
      id: request.id,
      model: context.generator.model.id,
      createdSeconds: Math.floor(context.clock.wallMs() / 1000),
      fingerprint: context.generator.model.fingerprint,
    };
    if (output.stream) await stream(context, reply, parsed, dialect, facts, events);
    else await whole(reply, parsed, dialect, facts, events);
  } catch (error) {
    // A bug of ours: the request still gets its terminal record, and the client an answer if none has begun.
    context.onInternalError(error, request.id);
    const internal = internalError(error);
    if (!trace.ended) trace.fail(internal);
    if (!reply.sent) await sendError(reply, internal);
  } finally {
    response.off("close", leave);
    end();
  }
}

async function* traced(events: EventSource, trace: RequestTrace): EventSource {
  for await (const event of events) {
    trace.take(event);
    yield event;
  }
}

async function whole(
  reply: FastifyReply,
  { request }: ParsedRequest,
  dialect: Dialect,
  facts: ResponseFacts,
  events: EventSource,
): Promise<void> {
  const body = new OpenAiBody(facts, dialect, request.topLogprobs !== null);
  for await (const event of events) {
    body.take(event);
    if (event.kind === "finished") await reply.send(body.body(event.usage, event.reports));
    else if (event.kind === "failed") await sendError(reply, event.error);
    else if (event.kind === "cancelled") reply.hijack();
  }
}

async function stream(
  context: ServerContext,
  reply: FastifyReply,
  { request, output }: ParsedRequest,
  dialect: Dialect,
  facts: ResponseFacts,
  events: EventSource,
): Promise<void> {
  const choices = request.prompts.length * request.choices;
  const acceptance = await awaitAcceptance(events, choices, context.clock);
  if (acceptance.kind === "refused") {
    await sendError(reply, acceptance.error);
    return;
  }
  reply.hijack();
  if (acceptance.kind === "cancelled") return;
  const live = new LiveChoices(context.clock);
  const renderer = new OpenAiStream(facts, dialect, output, request.topLogprobs !== null, (choice) => live.of(choice));
  const channel = new EventStream(reply.raw, context.clock, () => live.describe());
  channel.open(reply.getHeaders());
  try {
    for await (const event of acceptance.events) {
      live.take(event);
      await channel.send(renderer.chunksOf(event));
      await finish(channel, event);
    }
  } catch (error) {
    await fail(channel, internalError(error));
    throw error;
  }
}

async function finish(channel: EventStream, event: GenerationEvent): Promise<void> {
  if (event.kind === "failed") await fail(channel, event.error);
  if (event.kind !== "finished") return;
  await channel.write(SSE_DONE);
  channel.end();
}

/** No `[DONE]`: a client that knows no error events must not take half an answer for a whole one. */
async function fail(channel: EventStream, error: ApiError): Promise<void> {
  await channel.send([openAiErrorBody(error)]);
  channel.end();
}
