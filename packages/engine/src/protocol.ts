/**
 * What the server process and its engine child say to each other. Plain data for structured clone: tokens and numbers, typed
 * arrays as they are. Both sides compare `PROTOCOL_VERSION` when the engine opens and refuse to go on with another one.
 *
 *   parent: open → (submit | cancel | consumed | status-request)* → close
 *   child:  progress* → opened | open-failed → (events | status)* → closed
 */

import type { CodedErrorRecord, RequestId } from "@kvasir/kit";
import type { BackendFacts } from "./backend.ts";
import type { EngineEvent, EngineRequest, EngineStatus } from "./request.ts";

/** Grows with every change of a message that an older side would misread. */
export const PROTOCOL_VERSION = 1;

/** `Config`: what the composition root needs to open its backend; this package only carries it. */
export type ParentMessage<Config = unknown> =
  /** First message, once. */
  | { readonly kind: "open"; readonly version: number; readonly config: Config }
  | { readonly kind: "submit"; readonly request: EngineRequest }
  | { readonly kind: "cancel"; readonly id: RequestId }
  /** The reader has taken `tokens` more output tokens of this request. */
  | { readonly kind: "consumed"; readonly id: RequestId; readonly tokens: number }
  /** Answered by one `status` with the same ticket. */
  | { readonly kind: "status-request"; readonly ticket: number }
  /** No new requests; running ones have `drainMs` to end. A later `close` can only shorten the wait. */
  | { readonly kind: "close"; readonly drainMs: number };

export type ChildMessage =
  /** Share of the model that is loaded, 0 to 1. */
  | { readonly kind: "progress"; readonly fraction: number }
  | { readonly kind: "opened"; readonly version: number; readonly facts: BackendFacts }
  /** Terminal. */
  | { readonly kind: "open-failed"; readonly error: CodedErrorRecord }
  /** All events of one engine step, in order. */
  | { readonly kind: "events"; readonly events: readonly EngineEvent[] }
  | { readonly kind: "status"; readonly ticket: number; readonly status: EngineStatus }
  /** Terminal: every request has ended, everything is freed. */
  | { readonly kind: "closed" };
