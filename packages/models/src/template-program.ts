/** One Jinja chat template, compiled once and run with values of a request. */

import { Environment, Interpreter, parse, Template, tokenize } from "@huggingface/jinja";
import { type Clock, CodedError, messageOf } from "@kvasir/kit";
import { strftime } from "./strftime.ts";

/** The parts of the Jinja library's runtime that are used here; its own declarations do not resolve under `nodenext`. */
interface JinjaNode {
  readonly type: string;
}
interface JinjaProgram extends JinjaNode {
  body: readonly JinjaNode[];
}
interface JinjaEnvironment {
  /** Declares a variable; a name can be declared once. */
  set(name: string, value: unknown): unknown;
}
interface JinjaInterpreter {
  run(program: JinjaProgram): { readonly value: unknown };
  /** Called for every node, also by the interpreter itself. */
  evaluate(node: JinjaNode | undefined, environment: JinjaEnvironment): unknown;
}

/** What the template itself refused with `raise_exception`. */
class RaisedByTemplate extends Error {}

/** Names that a template finds besides the values of the request. */
export const templateGlobals = [
  "true",
  "false",
  "none",
  "True",
  "False",
  "None",
  "raise_exception",
  "range",
  "strftime_now",
  "namespace",
] as const;

export class TemplateProgram {
  readonly source: string;
  readonly #clock: Clock;
  readonly #program: JinjaProgram;

  /** @throws CodedError chat_template_failed when the source is no valid Jinja */
  constructor(source: string, clock: Clock) {
    this.source = source;
    this.#clock = clock;
    try {
      this.#program = parse(tokenize(source, { lstrip_blocks: true, trim_blocks: true }));
    } catch (error) {
      const line = unreadableLine(source, messageOf(error));
      const where = line === null ? "" : ` at line ${line}`;
      throw new CodedError("chat_template_failed", `the model's chat template cannot be read${where}: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }

  /**
   * @param values plain data by name; none of `templateGlobals`
   * @throws CodedError chat_template_failed with what the template said, or where it failed
   */
  render(values: Readonly<Record<string, unknown>>): string {
    const environment: JinjaEnvironment = new Environment();
    for (const [name, value] of Object.entries(this.#globals())) environment.set(name, value);
    for (const [name, value] of Object.entries(values)) environment.set(name, value);
    const interpreter: JinjaInterpreter = new Interpreter(environment);
    const failedAt = rememberFailure(interpreter);
    try {
      return String(interpreter.run(this.#program).value);
    } catch (error) {
      if (error instanceof RaisedByTemplate) {
        throw new CodedError("chat_template_failed", `the model's chat template refuses these messages: ${error.message}`, {
          cause: error,
        });
      }
      const where = this.#locate(failedAt(error));
      throw new CodedError("chat_template_failed", `the model's chat template failed${where}: ${messageOf(error)}`, {
        cause: error,
      });
    }
  }

  #globals(): Record<string, unknown> {
    return {
      true: true,
      false: false,
      none: null,
      True: true,
      False: false,
      None: null,
      raise_exception: (message: unknown) => {
        throw new RaisedByTemplate(String(message));
      },
      range: pythonRange,
      strftime_now: (format: unknown) => strftime(new Date(this.#clock.wallMs()), String(format)),
    };
  }

  /** ` at {{ expression }} (line N)`, as far as it can be told. */
  #locate(node: JinjaNode | null): string {
    if (!node) return "";
    const printer = new Template("");
    printer.parsed.body = [node];
    const expression = printer
      .format()
      .trim()
      .replace(/^\{\{-? ?| ?-?\}\}$/g, "");
    const line = lineOf(this.source, expression);
    const shown = expression.length > 80 ? `${expression.slice(0, 80)}…` : expression;
    return ` at {{ ${shown} }}${line === null ? "" : ` (line ${line})`}`;
  }
}

/** Makes the interpreter remember the innermost expression that an error came from. Returns the question for it. */
function rememberFailure(interpreter: JinjaInterpreter): (error: unknown) => JinjaNode | null {
  let failure: { readonly error: unknown; readonly node: JinjaNode } | null = null;
  const evaluate = interpreter.evaluate.bind(interpreter);
  interpreter.evaluate = (node, environment) => {
    try {
      return evaluate(node, environment);
    } catch (error) {
      if (node && failure?.error !== error) failure = { error, node };
      throw error;
    }
  };
  return (error) => (failure !== null && failure.error === error ? failure.node : null);
}

/** Line of an expression that the printer wrote in its own spacing and quotes; null when it stands in several places. */
function lineOf(source: string, expression: string): number | null {
  const skip = /[\s"'()]/;
  const wanted = expression.replace(/[\s"'()]/g, "");
  const positions: number[] = [];
  let plain = "";
  for (let i = 0; i < source.length; i++) {
    const character = source[i] ?? "";
    if (skip.test(character)) continue;
    plain += character;
    positions.push(i);
  }
  const at = plain.indexOf(wanted);
  if (wanted === "" || at < 0 || plain.includes(wanted, at + 1)) return null;
  return source.slice(0, positions[at]).split("\n").length;
}

/** First line whose text brings up the same complaint; null when only the whole does. */
function unreadableLine(source: string, complaint: string): number | null {
  const lines = source.split("\n");
  for (let count = 1; count <= lines.length; count++) {
    try {
      tokenize(lines.slice(0, count).join("\n"), { lstrip_blocks: true, trim_blocks: true });
    } catch (error) {
      if (messageOf(error) === complaint) return count;
    }
  }
  return null;
}

function pythonRange(first: number, second?: number, step = 1): number[] {
  const [start, stop] = typeof second === "number" ? [first, second] : [0, first];
  if (step === 0) throw new Error("range() step must not be zero");
  const values: number[] = [];
  for (let value = start; step > 0 ? value < stop : value > stop; value += step) values.push(value);
  return values;
}
