/**
 * Every error that a user can meet, in one table. `docs/errors.md` lists the same codes and a test compares both ways.
 *
 * `status` is the HTTP status of an error that answers a request, null for one that stops a command or the start.
 * `retryAfterSeconds` becomes the `Retry-After` header. Messages are written where the error is thrown, with the value,
 * the rule and the way out.
 */

export interface ErrorKind {
  readonly status: number | null;
  readonly retryAfterSeconds?: number;
}

export const errorCatalogue = {
  // a request that cannot be answered as sent
  invalid_http: { status: 400 },
  invalid_json: { status: 400 },
  invalid_utf8: { status: 400 },
  invalid_value: { status: 400 },
  missing_field: { status: 400 },
  unsupported_field: { status: 400 },
  context_length_exceeded: { status: 400 },
  max_tokens_exceeds_window: { status: 400 },
  chat_template_failed: { status: 400 },
  missing_api_key: { status: 401 },
  invalid_api_key: { status: 401 },
  host_not_allowed: { status: 403 },
  origin_not_allowed: { status: 403 },
  route_not_found: { status: 404 },
  model_not_found: { status: 404 },
  method_not_allowed: { status: 405 },
  request_timeout: { status: 408 },
  body_too_large: { status: 413 },
  unsupported_media_type: { status: 415 },
  headers_too_large: { status: 431 },
  // a request that the server cannot take now
  queue_full: { status: 429, retryAfterSeconds: 5 },
  queue_timeout: { status: 503, retryAfterSeconds: 10 },
  engine_starting: { status: 503, retryAfterSeconds: 2 },
  engine_unavailable: { status: 503, retryAfterSeconds: 5 },
  shutting_down: { status: 503, retryAfterSeconds: 5 },
  // a request that failed
  engine_crashed: { status: 500 },
  decode_failed: { status: 500 },
  internal_error: { status: 500 },
  // a start or a command that stops
  invalid_configuration: { status: null },
  port_in_use: { status: null },
  model_reference_invalid: { status: null },
  model_file_missing: { status: null },
  model_file_invalid: { status: null },
  model_file_truncated: { status: null },
  model_architecture_unknown: { status: null },
  model_too_large: { status: null },
  model_download_failed: { status: null },
  model_checksum_mismatch: { status: null },
  kv_memory_insufficient: { status: null },
  cache_folder_in_use: { status: null },
  library_missing: { status: null },
  library_mismatch: { status: null },
  engine_start_failed: { status: null },
  server_not_running: { status: null },
  server_already_running: { status: null },
  bench_failed: { status: null },
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof errorCatalogue;
