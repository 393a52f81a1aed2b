/** Typed look-ups in the metadata of a GGUF file. A key of the wrong type is treated like a broken file, never guessed at. */

import { CodedError } from "@kvasir/kit";
import { type GgufValue, StringTable } from "./gguf-reader.ts";

export class GgufMetadata {
  readonly #path: string;
  readonly #values: ReadonlyMap<string, GgufValue>;

  /** @param path names the file in errors */
  constructor(path: string, values: ReadonlyMap<string, GgufValue>) {
    this.#path = path;
    this.#values = values;
  }

  number(key: string): number | undefined {
    const value = this.#values.get(key);
    if (value === undefined || typeof value === "number") return value;
    throw this.#wrong(key, "a number");
  }

  requiredNumber(key: string): number {
    const value = this.number(key);
    if (value === undefined) throw this.#broken(`the key ${key} is missing`);
    return value;
  }

  /** A whole number from 1 to `most`. */
  requiredCount(key: string, most: number): number {
    const value = this.requiredNumber(key);
    if (!Number.isInteger(value) || value < 1 || value > most)
      throw this.#broken(`${key} is ${value}, 1 to ${most} are possible`);
    return value;
  }

  string(key: string): string | undefined {
    const value = this.#values.get(key);
    if (value === undefined || typeof value === "string") return value;
    throw this.#wrong(key, "a string");
  }

  boolean(key: string): boolean | undefined {
    const value = this.#values.get(key);
    if (value === undefined || typeof value === "boolean") return value;
    throw this.#wrong(key, "a boolean");
  }

  strings(key: string): StringTable | undefined {
    const value = this.#values.get(key);
    if (value === undefined || value instanceof StringTable) return value;
    throw this.#wrong(key, "an array of strings");
  }

  numbers(key: string): readonly number[] | undefined {
    const value = this.#values.get(key);
    if (value === undefined) return undefined;
    if (Array.isArray(value)) return value.map(Number);
    throw this.#wrong(key, "an array of numbers");
  }

  /** One number a layer, where the file may give one for all. An array may be longer than `layers`, not shorter. */
  perLayer(key: string, layers: number): readonly number[] | undefined {
    const value = this.#values.get(key);
    if (value === undefined) return undefined;
    if (typeof value === "number" || typeof value === "boolean") return Array.from({ length: layers }, () => Number(value));
    const numbers = this.numbers(key) ?? [];
    if (numbers.length < layers) throw this.#broken(`${key} has ${numbers.length} entries for ${layers} layers`);
    return numbers.slice(0, layers);
  }

  isArray(key: string): boolean {
    return Array.isArray(this.#values.get(key));
  }

  #wrong(key: string, expected: string): CodedError {
    return this.#broken(`the key ${key} is not ${expected}`);
  }

  #broken(reason: string): CodedError {
    return new CodedError("model_file_invalid", `${this.#path} is not a usable GGUF model: ${reason}`);
  }
}
