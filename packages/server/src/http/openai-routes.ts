/** `/v1/chat/completions` and `/v1/completions`. */

import type { RequestId } from "@kvasir/kit";
import {
  chatDialect,
  completionDialect,
  parseChatRequest,
  parseCompletionRequest,
  type ParsedCompletionRequest,
  type Prompt,
} from "@kvasir/wire";
import type { FastifyInstance } from "fastify";
import { replyWithGeneration } from "./generation-reply.ts";
import type { ServerContext } from "./server-context.ts";

export function addOpenAiRoutes(app: FastifyInstance, context: ServerContext): void {
  const { generator } = context;

  app.post("/v1/chat/completions", { config: { protocol: "openai-chat" } }, async (request, reply) => {
    const id = request.id as RequestId;
    const parsed = parseChatRequest(request.body, { id, defaultModel: generator.model.id });
    await replyWithGeneration(context, reply, parsed, chatDialect);
    return reply;
  });

  app.post("/v1/completions", { config: { protocol: "openai-completions" } }, async (request, reply) => {
    const id = request.id as RequestId;
    const parsed = parseCompletionRequest(request.body, { id, defaultModel: generator.model.id });
    await replyWithGeneration(context, reply, parsed, completionDialect(echoes(parsed, context)));
    return reply;
  });
}

/** The text in front of each choice. */
function echoes({ request, echo }: ParsedCompletionRequest, { generator }: ServerContext): (choice: number) => string {
  if (!echo) return () => "";
  const textOf = (prompt: Prompt): string => {
    if (prompt.kind === "text") return prompt.text;
    if (prompt.kind === "tokens") return Buffer.concat(generator.pieces(prompt.tokens)).toString("utf8");
    return "";
  };
  const texts = request.prompts.map(textOf);
  return (choice) => texts[Math.floor(choice / request.choices)] ?? "";
}
