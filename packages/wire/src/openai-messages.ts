/** Chat messages: what clients send (with the leftovers of other servers in their history) to what chat templates read. */

import { z } from "zod";
import { type FieldPolicy, refuseUnsupported, unsupported, withoutNulls } from "./field-policy.ts";
import type { ChatMessage } from "./generation.ts";
import { defined } from "./openai-fields.ts";
import { invalidValue, parseWith } from "./schema-error.ts";

const ROLES = ["system", "developer", "user", "assistant", "tool"] as const;
const roleRule = `one of ${ROLES.join(", ")}`;
const contentRule = "a string or an array of text parts";

const toolCall = z.looseObject(
  {
    id: z.string("a string"),
    type: z.literal("function", '"function"'),
    function: z.looseObject(
      { name: z.string("a string"), arguments: z.string("a string of JSON") },
      "an object with name and arguments",
    ),
  },
  "a tool call",
);

const messageShape = {
  role: z.enum(ROLES, roleRule),
  content: z.unknown().optional(),
  name: z.string("a string").optional(),
  reasoning_content: z.string("a string").optional(),
  reasoning: z.string("a string").optional(),
  refusal: z.string("a string").optional(),
  tool_calls: z.array(toolCall, "an array of tool calls").optional(),
  tool_call_id: z.string("a string").optional(),
};
const messageRule = "a message: an object with role and content";
const message = z.looseObject(messageShape, messageRule);

const messagePolicy: FieldPolicy = {
  known: Object.keys(messageShape),
  // What answers of this and other servers carry and clients send back.
  harmless: ["annotations", "reasoning_details", "id", "status", "cache_control"],
  neutral: {
    audio: { isNeutral: () => false, reason: "this model reads text only. Leave it out." },
    function_call: { isNeutral: () => false, reason: "use tool_calls." },
  },
  aliases: {},
};

const messagesRule = "an array of at least one message";

/** @throws CodedError naming the message, such as `messages[2].role` */
export function readMessages(value: unknown): ChatMessage[] {
  if (!Array.isArray(value) || value.length === 0) throw invalidValue("messages", value, messagesRule);
  return value.map((item, index) => readMessage(item, `messages[${index}]`));
}

function readMessage(value: unknown, at: string): ChatMessage {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw invalidValue(at, value, messageRule);
  const body = withoutNulls({ ...value });
  refuseUnsupported(body, messagePolicy, at);
  const fields = parseWith(message, body, at);
  const { role, name, tool_calls, tool_call_id } = fields;
  const common = defined({ name, tool_call_id, reasoning_content: fields.reasoning_content ?? fields.reasoning });
  const content = readContent(fields.content ?? fields.refusal, `${at}.content`, role === "assistant");
  if (tool_calls === undefined || tool_calls.length === 0) return { role, content, ...common };
  const calls = tool_calls.map((call) => ({
    id: call.id,
    type: call.type,
    function: { name: call.function.name, arguments: call.function.arguments },
  }));
  return { role, content, tool_calls: calls, ...common };
}

/** An assistant's turn may be empty: it called a tool, or only thought. */
function readContent(value: unknown, at: string, mayBeEmpty: boolean): ChatMessage["content"] {
  if (typeof value === "string") return value;
  if (value === undefined) {
    if (mayBeEmpty) return null;
    throw invalidValue(at, value, contentRule);
  }
  if (!Array.isArray(value)) throw invalidValue(at, value, contentRule);
  if (value.length === 0) {
    if (mayBeEmpty) return null;
    throw invalidValue(at, value, `${contentRule}, at least one`);
  }
  return value.map((part, index) => readPart(part, `${at}[${index}]`));
}

const partShape = { type: z.string('the kind of the part, such as "text"') };
const part = z.looseObject(partShape, "an object with type and text");
const textRule = "a string";

function readPart(value: unknown, at: string): { readonly type: "text"; readonly text: string } {
  const fields = parseWith(part, value, at);
  if (fields.type === "text") return { type: "text", text: parseWith(z.string(textRule), fields.text, `${at}.text`) };
  if (fields.type === "refusal") return { type: "text", text: parseWith(z.string(textRule), fields.refusal, `${at}.refusal`) };
  throw unsupported(
    at,
    `${at} is a part of type ${JSON.stringify(fields.type).slice(0, 40)}; this model reads text only. Send parts of type "text".`,
  );
}
