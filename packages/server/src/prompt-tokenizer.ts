/**
 * From a prompt to its tokens. A chat template gives segments, cut so that no user's text can join into a control token; each
 * is tokenized on its own. BOS stands in front once, whether the template wrote it or the model wants it.
 */

import type { Tokenizer } from "@kvasir/engine";
import { CodedError } from "@kvasir/kit";
import type { ChatTemplate } from "@kvasir/models";
import type { Prompt } from "@kvasir/wire";

export class PromptTokenizer {
  readonly #tokenizer: Tokenizer;
  readonly #template: Pick<ChatTemplate, "render">;

  constructor(tokenizer: Tokenizer, template: Pick<ChatTemplate, "render">) {
    this.#tokenizer = tokenizer;
    this.#template = template;
  }

  /**
   * @param param the request field, for errors
   * @throws CodedError invalid_value, chat_template_failed
   */
  async tokensOf(prompt: Prompt, param: string): Promise<Int32Array> {
    switch (prompt.kind) {
      case "tokens":
        this.check(prompt.tokens, param);
        return Int32Array.from(prompt.tokens);
      case "text": {
        const { addSpecial, parseSpecial } = prompt;
        const tokens = await this.#tokenizer.tokenize(prompt.text, { addSpecial: false, parseSpecial });
        return addSpecial ? this.#withBos(tokens) : tokens;
      }
      case "chat": {
        const { messages, tools, templateArguments } = prompt;
        const options = { ...(tools ? { tools } : {}), ...(templateArguments ? { templateArguments } : {}) };
        const segments = await Promise.all(
          this.#template
            .render(messages, options)
            .map((text) => this.#tokenizer.tokenize(text, { addSpecial: false, parseSpecial: true })),
        );
        return this.#withBos(concat(segments));
      }
    }
  }

  /** @throws CodedError invalid_value naming the first token that is outside the vocabulary */
  check(tokens: readonly number[], param: string): void {
    const last = this.#tokenizer.vocabSize - 1;
    const index = tokens.findIndex((token) => token < 0 || token > last);
    if (index < 0) return;
    throw new CodedError(
      "invalid_value",
      `${param}[${index}] is ${tokens[index]}; the vocabulary has the tokens 0 to ${last}.`,
      {
        param: `${param}[${index}]`,
      },
    );
  }

  #withBos(tokens: Int32Array): Int32Array {
    const { bosToken } = this.#tokenizer;
    if (bosToken === null || tokens[0] === bosToken) return tokens;
    return concat([Int32Array.of(bosToken), tokens]);
  }
}

function concat(parts: readonly Int32Array[]): Int32Array {
  if (parts.length === 1 && parts[0]) return parts[0];
  const all = new Int32Array(parts.reduce((total, part) => total + part.length, 0));
  let end = 0;
  for (const part of parts) {
    all.set(part, end);
    end += part.length;
  }
  return all;
}
