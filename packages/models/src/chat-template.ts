/**
 * From chat messages to the text of a prompt, by the model's own Jinja template. Lives in the server process; compiled once,
 * rendered for every request. The result is a list of segments, see `control-text-guard.ts` for why.
 */

import { type Clock, CodedError, systemClock } from "@kvasir/kit";
import type { ChatMessage } from "@kvasir/wire";
import { ControlTextGuard, cutAtMarkers, unusedMarker } from "./control-text-guard.ts";
import type { GgufFacts } from "./gguf-facts.ts";
import { type Render, TemplateCapabilities, type TemplateMessage, toTemplateMessages } from "./template-messages.ts";
import { templateGlobals, TemplateProgram } from "./template-program.ts";
import type { ChatTemplateSources } from "./tokenizer-facts.ts";

export interface ChatTemplateOptions {
  readonly sources: ChatTemplateSources;
  /** Texts of all control tokens. */
  readonly controlTexts: Iterable<string>;
  /** Texts that the template finds as `bos_token` and `eos_token`; "" where the model has none. */
  readonly bosText: string;
  readonly eosText: string;
  /** The tokenizer puts BOS in front of a prompt: the template's own is taken off, so that there is one. */
  readonly addsBos: boolean;
  readonly clock?: Clock;
}

export interface RenderOptions {
  readonly tools?: readonly unknown[];
  /** Ends the prompt where the assistant begins to speak. Default true. */
  readonly addGenerationPrompt?: boolean;
  /** Further values for the template, for example `enable_thinking`. */
  readonly templateArguments?: Readonly<Record<string, unknown>>;
}

const knownRoles: ReadonlySet<string> = new Set(["system", "developer", "user", "assistant", "tool", "function"]);
const ownNames: ReadonlySet<string> = new Set([
  ...templateGlobals,
  "messages",
  "tools",
  "bos_token",
  "eos_token",
  "add_generation_prompt",
]);

/** ChatML: for vocabularies that have its control tokens and files that forgot the template. */
const chatMl =
  "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

interface CompiledTemplate {
  readonly program: TemplateProgram;
  readonly capabilities: TemplateCapabilities;
}

export class ChatTemplate {
  readonly #options: ChatTemplateOptions;
  readonly #guard: ControlTextGuard;
  readonly #clock: Clock;
  readonly #main: CompiledTemplate | CodedError;
  readonly #toolUse: CompiledTemplate | CodedError | null;

  /** Never throws: what is wrong with the template is in `problem`, and every `render` throws it. */
  constructor(options: ChatTemplateOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    const controlTexts = new Set(options.controlTexts);
    this.#guard = new ControlTextGuard(controlTexts);
    this.#main = this.#compile(mainSource(options.sources, controlTexts));
    const toolUse = options.sources.named.get("tool_use");
    this.#toolUse = toolUse === undefined ? null : this.#compile(toolUse);
  }

  /**
   * The template of a model file.
   * @param controlTexts control texts that the tokenizer knows; those of the file are added
   * @param addsBos whether the tokenizer adds BOS, where it knows better than the file
   */
  static forModel(
    facts: GgufFacts,
    options: { controlTexts?: Iterable<string>; addsBos?: boolean; clock?: Clock } = {},
  ): ChatTemplate {
    const { tokenizer, chatTemplates } = facts;
    return new ChatTemplate({
      sources: chatTemplates,
      controlTexts: [...tokenizer.controlTexts, ...(options.controlTexts ?? [])],
      bosText: tokenizer.bos?.text ?? "",
      eosText: tokenizer.eos?.text ?? "",
      addsBos: options.addsBos ?? tokenizer.addsBos,
      ...(options.clock ? { clock: options.clock } : {}),
    });
  }

  /** Why this model cannot chat, or null. */
  get problem(): CodedError | null {
    return this.#main instanceof CodedError ? this.#main : null;
  }

  /** Whether tools reach the prompt. With a template that ignores them, the model never learns of them. */
  get showsTools(): boolean {
    const template = this.#toolUse ?? this.#main;
    return !(template instanceof CodedError) && template.capabilities.showsTools;
  }

  /**
   * Text of the prompt as segments: tokenize each with special tokens parsed, the first also with BOS added where the model
   * wants it, and put the tokens together. No control text in them comes from the messages, tools or arguments.
   * @throws CodedError chat_template_failed, invalid_value
   */
  render(messages: readonly ChatMessage[], options: RenderOptions = {}): string[] {
    const tools = options.tools && options.tools.length > 0 ? options.tools : null;
    const template = tools && this.#toolUse ? this.#toolUse : this.#main;
    if (template instanceof CodedError) throw template;
    const extra = checkArguments(options.templateArguments ?? {});
    const marker = unusedMarker(messages, tools, extra, template.program.source);
    const prepared = toTemplateMessages(messages, template.capabilities).map((message) => this.#guardMessage(message, marker));
    const rendered = template.program.render({
      ...this.#specialTexts(),
      ...(this.#guard.markDeep(extra, marker) as Record<string, unknown>),
      messages: prepared,
      tools: this.#guard.markDeep(tools, marker),
      add_generation_prompt: options.addGenerationPrompt ?? true,
    });
    return this.#withoutRepeatedBos(cutAtMarkers(rendered, marker));
  }

  /** Control texts are broken everywhere; a role that is none of the usual ones may not even touch the template's own text. */
  #guardMessage(message: TemplateMessage, marker: string): Record<string, unknown> {
    const { role, ...rest } = message;
    const guardedRole = knownRoles.has(role) ? role : `${marker}${this.#guard.mark(role, marker)}${marker}`;
    const guarded = Object.entries(rest).map(([field, value]) => [field, this.#guard.markDeep(value, marker)]);
    return { role: guardedRole, ...Object.fromEntries(guarded) };
  }

  #compile(source: string | CodedError): CompiledTemplate | CodedError {
    if (source instanceof CodedError) return source;
    try {
      const program = new TemplateProgram(source, this.#clock);
      const probe: Render = (messages, tools) =>
        program.render({ ...this.#specialTexts(), messages, tools, add_generation_prompt: true });
      return { program, capabilities: new TemplateCapabilities(program, probe) };
    } catch (error) {
      if (error instanceof CodedError) return error;
      throw error;
    }
  }

  #specialTexts(): { bos_token: string; eos_token: string } {
    return { bos_token: this.#options.bosText, eos_token: this.#options.eosText };
  }

  #withoutRepeatedBos(segments: readonly string[]): string[] {
    const { bosText, addsBos } = this.#options;
    const [first = "", ...rest] = segments;
    if (bosText === "" || !first.startsWith(bosText)) return [...segments];
    let text = first;
    while (text.startsWith(bosText)) text = text.slice(bosText.length);
    const start = addsBos ? text : bosText + text;
    return start === "" ? rest : [start, ...rest];
  }
}

function mainSource(sources: ChatTemplateSources, controlTexts: ReadonlySet<string>): string | CodedError {
  if (sources.default !== null) return sources.default;
  if (controlTexts.has("<|im_start|>") && controlTexts.has("<|im_end|>")) return chatMl;
  return new CodedError(
    "chat_template_failed",
    "the model has no chat template, so it is probably not made for chat; use /v1/completions, or a model with a template",
  );
}

function checkArguments(extra: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  for (const name of Object.keys(extra)) {
    if (!ownNames.has(name)) continue;
    const param = `chat_template_kwargs.${name}`;
    throw new CodedError("invalid_value", `${param} cannot be set: the server gives the template its own "${name}"`, { param });
  }
  return extra;
}
