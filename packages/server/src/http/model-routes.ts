/** `/v1/models`, `/tokenize`, `/detokenize`: what the model is, and its vocabulary. */

import { CodedError } from "@kvasir/kit";
import { parseDetokenizeRequest, parseTokenizeRequest } from "@kvasir/wire";
import type { FastifyInstance } from "fastify";
import type { Generator } from "../generator.ts";
import type { ServerContext } from "./server-context.ts";
import { refusalOf } from "./operation-routes.ts";

export function addModelRoutes(app: FastifyInstance, { generator }: ServerContext): void {
  app.get("/v1/models", async () => {
    const refusal = refusalOf(generator);
    // Its capacity is known once it is loaded; a list without it would be taken for readiness.
    if (refusal && !generator.facts) throw refusal;
    return { object: "list", data: [modelEntry(generator)] };
  });

  // Names may have slashes, encoded or not.
  app.get<{ Params: { "*": string } }>("/v1/models/*", async (request) => {
    const name = request.params["*"];
    const { id, aliases } = generator.model;
    if (name === id || aliases.includes(name)) return modelEntry(generator);
    throw new CodedError(
      "model_not_found",
      `The model ${JSON.stringify(name).slice(0, 80)} is not here. This server has ${JSON.stringify(id)}.`,
      { param: "model" },
    );
  });

  app.post("/tokenize", async (request) => {
    const { text, addSpecial, parseSpecial, withPieces } = parseTokenizeRequest(request.body);
    const tokens = await generator.tokenize(text, { addSpecial, parseSpecial });
    return {
      tokens: withPieces ? pieces(generator, tokens) : tokens,
      count: tokens.length,
      max_model_len: generator.facts?.laneTokens ?? null,
    };
  });

  app.post("/detokenize", async (request) => {
    const { tokens } = parseDetokenizeRequest(request.body);
    return { content: Buffer.concat(generator.pieces(tokens)).toString("utf8") };
  });
}

/** A piece that is no whole text is told as its bytes. */
function pieces(generator: Generator, tokens: readonly number[]): object[] {
  const bytes = generator.pieces(tokens);
  return tokens.map((id, index) => {
    const piece = Buffer.from(bytes[index] ?? []);
    const text = piece.toString("utf8");
    return { id, piece: Buffer.from(text).equals(piece) ? text : [...piece] };
  });
}

function modelEntry({ model, facts, capacity }: Generator): object {
  const windowTokens = facts?.laneTokens ?? null;
  return {
    id: model.id,
    object: "model",
    created: model.createdSeconds,
    owned_by: model.ownedBy,
    aliases: model.aliases,
    // One number under the names that clients look for.
    context_length: windowTokens,
    max_model_len: windowTokens,
    max_output_tokens: windowTokens,
    trained_context_length: model.trainedContextTokens,
    input_modalities: model.inputModalities,
    output_modalities: model.outputModalities,
    capacity: {
      max_concurrency: capacity.maxConcurrency,
      max_pending_requests: capacity.maxPendingRequests,
      lanes: facts?.laneCount ?? null,
      lane_tokens: windowTokens,
      kv_capacity_tokens: facts ? facts.laneCount * facts.laneTokens : null,
      kv_bytes: facts?.kvBytes ?? null,
      kv_bytes_per_token: facts?.kvBytesPerToken ?? null,
    },
  };
}
