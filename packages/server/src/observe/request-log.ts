/**
 * The request log: one JSON record a phase change, exactly one terminal record a request. No text of prompts or answers, no
 * error messages (they may quote a value): codes and numbers only.
 *
 *   received → (queued | admitted | first_token, per choice)* → finished | failed | cancelled
 *   received → rejected          nothing was generated and nothing was promised
 */

export const REQUEST_LOG_SCHEMA_VERSION = 1;

/** Where records go: a rotating file, or nowhere. */
export interface RecordWriter {
  write(record: object): void;
  close(): Promise<void>;
}

export const noRecordWriter: RecordWriter = { write: () => {}, close: async () => {} };

export type RequestLogEvent =
  | "received"
  | "queued"
  | "admitted"
  | "first_token"
  | "finished"
  | "failed"
  | "cancelled"
  | "rejected";

export class RequestLog {
  readonly #writer: RecordWriter;
  readonly #serverInstanceId: string;
  readonly #wallMs: () => number;

  constructor(writer: RecordWriter, serverInstanceId: string, wallMs: () => number) {
    this.#writer = writer;
    this.#serverInstanceId = serverInstanceId;
    this.#wallMs = wallMs;
  }

  write(event: RequestLogEvent, requestId: string, fields: object): void {
    this.#writer.write({
      schema_version: REQUEST_LOG_SCHEMA_VERSION,
      server_instance_id: this.#serverInstanceId,
      time: new Date(this.#wallMs()).toISOString(),
      event,
      request_id: requestId,
      ...fields,
    });
  }
}
