/** Small clients for tests: JSON in one call, and a stream that is read event by event and can be left at any point. */

import { type ClientRequest, type IncomingHttpHeaders, type IncomingMessage, request as httpRequest } from "node:http";
import { SseDecoder, type SseItem } from "@kvasir/wire";

export interface ErrorFields {
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
  readonly type: string;
}

export interface JsonAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Readonly<Record<string, unknown>> & { readonly error?: ErrorFields };
}

export async function postJson(url: string, body: unknown, headers: Record<string, string> = {}): Promise<JsonAnswer> {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : body instanceof Uint8Array ? Buffer.from(body) : JSON.stringify(body),
  });
  return { status: response.status, headers: response.headers, body: (await response.json()) as JsonAnswer["body"] };
}

export async function getJson(url: string, headers: Record<string, string> = {}): Promise<JsonAnswer> {
  const response = await fetch(url, { headers });
  return { status: response.status, headers: response.headers, body: (await response.json()) as JsonAnswer["body"] };
}

/** One streamed POST on a connection of its own. */
export class StreamCall {
  readonly #request: ClientRequest;
  readonly #response: Promise<IncomingMessage>;
  readonly #decoder = new SseDecoder();
  readonly items: SseItem[] = [];
  #waiters: Array<() => void> = [];
  #ended = false;

  constructor(url: string, body: unknown) {
    const text = JSON.stringify(body);
    this.#request = httpRequest(url, {
      method: "POST",
      agent: false,
      headers: { "content-type": "application/json", "content-length": Buffer.byteLength(text) },
    });
    this.#response = new Promise((resolve, reject) => {
      this.#request.once("error", reject);
      this.#request.once("response", (response) => {
        response.on("data", (bytes: Buffer) => {
          this.items.push(...this.#decoder.push(bytes));
          this.#wake();
        });
        const end = (): void => {
          this.#ended = true;
          this.#wake();
        };
        response.on("end", end);
        response.on("error", end);
        resolve(response);
      });
    });
    // Left on purpose in some tests; those that want the response await it and get the error.
    this.#response.catch(() => {});
    this.#request.end(text);
  }

  async status(): Promise<number> {
    return (await this.#response).statusCode ?? 0;
  }

  async headers(): Promise<IncomingHttpHeaders> {
    return (await this.#response).headers;
  }

  /** Resolves when `condition` holds for what has arrived, or the stream has ended. */
  async until(condition: (items: readonly SseItem[]) => boolean): Promise<void> {
    while (!condition(this.items) && !this.#ended) await new Promise<void>((resolve) => this.#waiters.push(resolve));
  }

  async toEnd(): Promise<readonly SseItem[]> {
    await this.#response;
    await this.until(() => false);
    return this.items;
  }

  /** Parsed `data` events without `[DONE]`. */
  chunks<Chunk = StreamChunk>(): Chunk[] {
    return this.items.flatMap((item) =>
      item.kind === "data" && item.data !== "[DONE]" ? [JSON.parse(item.data) as Chunk] : [],
    );
  }

  get comments(): string[] {
    return this.items.flatMap((item) => (item.kind === "comment" ? [item.text] : []));
  }

  get doneCount(): number {
    return this.items.filter((item) => item.kind === "data" && item.data === "[DONE]").length;
  }

  pause(): void {
    void this.#response.then((response) => response.pause());
  }

  /** Closes the socket, as a client does that has gone. */
  leave(): void {
    this.#request.on("error", () => {});
    this.#request.destroy();
  }

  #wake(): void {
    for (const waiter of this.#waiters.splice(0)) waiter();
  }
}

export interface StreamChunk {
  readonly id: string;
  readonly choices: ReadonlyArray<{
    readonly index: number;
    readonly delta: { readonly role?: string; readonly content?: string };
    readonly text?: string;
    readonly finish_reason: string | null;
  }>;
  readonly usage?: { readonly prompt_tokens: number; readonly completion_tokens: number } | null;
  readonly timings?: Record<string, number>;
  readonly prompt_progress?: Record<string, number>;
  readonly error?: { readonly code: string; readonly type: string };
}

/** Text of a chat stream, all choices together. */
export function textOf(call: StreamCall): string {
  return call
    .chunks()
    .flatMap((chunk) => chunk.choices?.map((choice) => choice.delta?.content ?? choice.text ?? "") ?? [])
    .join("");
}

/** Resolves when `condition` holds; asked again after every turn of the event loop. */
export async function eventually(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise<void>((resolve) => setImmediate(resolve));
}
