/**
 * Messages in the form that one template understands. Templates disagree on three things, and each is found out by rendering a
 * probe: whether a tool call's arguments are text or an object, and whether content may be, or must be, a list of parts.
 */

import { CodedError, invariant } from "@kvasir/kit";
import type { ChatMessage } from "@kvasir/wire";
import type { TemplateProgram } from "./template-program.ts";

/** A message as it goes into the template. Absent fields are absent, so that `is defined` works. */
export interface TemplateMessage {
  readonly role: string;
  readonly content: string | ReadonlyArray<{ readonly type: "text"; readonly text: string }>;
  readonly [field: string]: unknown;
}

/** Rendering with every value that a template may ask for. */
export type Render = (messages: readonly TemplateMessage[], tools: readonly unknown[] | null) => string;

const NEEDLE = "kvasir-probe";

export class TemplateCapabilities {
  readonly #program: TemplateProgram;
  readonly #render: Render;
  #argumentObjects: boolean | undefined;
  #showsTools: boolean | undefined;
  #contentParts: "text" | "either" | "parts" | undefined;

  constructor(program: TemplateProgram, render: Render) {
    this.#program = program;
    this.#render = render;
  }

  /** The template shows a tool call's arguments only when they are an object. Text is preferred: it stays as the model wrote it. */
  get needsArgumentObjects(): boolean {
    const text = `{"${NEEDLE}": "value"}`;
    this.#argumentObjects ??=
      !this.#renderCall(text).includes(text) && this.#renderCall({ [NEEDLE]: "value" }).includes(NEEDLE);
    return this.#argumentObjects;
  }

  get contentForm(): "text" | "either" | "parts" {
    this.#contentParts ??= this.#findContentForm();
    return this.#contentParts;
  }

  /** What stands in `tools` reaches the prompt. */
  get showsTools(): boolean {
    const tool = {
      type: "function",
      function: { name: NEEDLE, description: "probe", parameters: { type: "object", properties: {} } },
    };
    this.#showsTools ??= this.#tryRender([{ role: "user", content: "probe" }], [tool]).includes(NEEDLE);
    return this.#showsTools;
  }

  /** The template knows the role `developer`; others get `system`. */
  get knowsDeveloper(): boolean {
    return this.#program.source.includes("developer");
  }

  #renderCall(callArguments: unknown): string {
    const call = { id: "call00001", type: "function", function: { name: "probe", arguments: callArguments } };
    return this.#tryRender([
      { role: "user", content: "probe" },
      { role: "assistant", content: "", tool_calls: [call] },
    ]);
  }

  #findContentForm(): "text" | "either" | "parts" {
    const takesText = this.#tryRender([{ role: "user", content: NEEDLE }]).includes(NEEDLE);
    const parts = this.#tryRender([{ role: "user", content: [part(`${NEEDLE}-1`), part(`${NEEDLE}-2`)] }]);
    const takesParts = parts.includes(`${NEEDLE}-1`) && parts.includes(`${NEEDLE}-2`) && !/['"]type['"]/.test(parts);
    if (!takesParts) return "text";
    return takesText ? "either" : "parts";
  }

  #tryRender(messages: readonly TemplateMessage[], tools: readonly unknown[] | null = null): string {
    try {
      return this.#render(messages, tools);
    } catch (error) {
      invariant(error instanceof CodedError, "a template fails with chat_template_failed only");
      return "";
    }
  }
}

/** @throws CodedError chat_template_failed when arguments must be an object and are not JSON of one */
export function toTemplateMessages(messages: readonly ChatMessage[], capabilities: TemplateCapabilities): TemplateMessage[] {
  return messages.map((message, index) => ({
    ...definedOnly({
      name: message.name,
      reasoning_content: message.reasoning_content,
      tool_call_id: message.tool_call_id,
      tool_calls: message.tool_calls && toTemplateCalls(message.tool_calls, index, capabilities),
    }),
    role: message.role === "developer" && !capabilities.knowsDeveloper ? "system" : message.role,
    content: toTemplateContent(message.content, capabilities),
  }));
}

function toTemplateContent(content: ChatMessage["content"], capabilities: TemplateCapabilities): TemplateMessage["content"] {
  if (content === null) return "";
  if (typeof content === "string") return content !== "" && capabilities.contentForm === "parts" ? [part(content)] : content;
  const parts = content.map(({ text }) => part(text));
  return capabilities.contentForm === "text" ? parts.map(({ text }) => text).join("\n") : parts;
}

function toTemplateCalls(
  calls: NonNullable<ChatMessage["tool_calls"]>,
  messageIndex: number,
  capabilities: TemplateCapabilities,
): unknown[] {
  return calls.map((call, callIndex) => {
    const text = call.function.arguments;
    const shown = capabilities.needsArgumentObjects ? parseArguments(text, messageIndex, callIndex) : text;
    return { id: call.id, type: call.type, function: { name: call.function.name, arguments: shown } };
  });
}

function parseArguments(text: string, messageIndex: number, callIndex: number): object {
  const param = `messages[${messageIndex}].tool_calls[${callIndex}].function.arguments`;
  try {
    const value: unknown = JSON.parse(text === "" ? "{}" : text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  } catch {
    // told below, like JSON of another kind
  }
  throw new CodedError("chat_template_failed", `${param} is not a JSON object, and the model's chat template needs one`, {
    param,
  });
}

function part(text: string): { readonly type: "text"; readonly text: string } {
  return { type: "text", text };
}

function definedOnly(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}
