/** Server-sent events as OpenAI uses them: unnamed `data` events and comments. */

/** One event. `value` becomes one line of JSON. */
export function sseData(value: unknown): string {
  return `data: ${JSON.stringify(value)}\n\n`;
}

/** A line that clients skip; it keeps a connection that has nothing else to say. */
export function sseComment(text: string): string {
  return `: ${text.replaceAll(/[\r\n]+/g, " ")}\n\n`;
}

/** The last event of a stream that ended well. */
export const SSE_DONE = "data: [DONE]\n\n";

export type SseItem = { readonly kind: "data"; readonly data: string } | { readonly kind: "comment"; readonly text: string };

/** Reads a stream piece by piece, however it was cut. Owns the unfinished character, line and event. */
export class SseDecoder {
  readonly #decoder = new TextDecoder("utf-8");
  #rest = "";
  #data: string[] = [];

  /** Everything that `bytes` completes, in order. */
  push(bytes: Uint8Array): SseItem[] {
    const items: SseItem[] = [];
    const pending = this.#rest + this.#decoder.decode(bytes, { stream: true });
    // A carriage return at the end of the piece may be half of CR LF: it waits.
    const usable = pending.endsWith("\r") ? pending.slice(0, -1) : pending;
    const lines = usable.split(/\r\n|\n|\r/);
    this.#rest = (lines.pop() ?? "") + pending.slice(usable.length);
    for (const line of lines) {
      const item = this.#take(line);
      if (item) items.push(item);
    }
    return items;
  }

  /** Whether the stream stopped inside an event. */
  get isUnfinished(): boolean {
    return this.#rest.trim() !== "" || this.#data.length > 0;
  }

  #take(line: string): SseItem | null {
    if (line === "") {
      if (this.#data.length === 0) return null;
      const data = this.#data.join("\n");
      this.#data = [];
      return { kind: "data", data };
    }
    if (line.startsWith(":")) return { kind: "comment", text: line.slice(1).trim() };
    if (line === "data") this.#data.push("");
    if (line.startsWith("data:")) this.#data.push(line.slice(line.startsWith("data: ") ? 6 : 5));
    return null;
  }
}
