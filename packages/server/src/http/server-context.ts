/** What routes share: the parts of one server. */

import type { Clock } from "@kvasir/kit";
import type { Generator } from "../generator.ts";
import type { RequestLog } from "../observe/request-log.ts";
import type { ServerMetrics } from "../observe/server-metrics.ts";
import type { ActiveRequests } from "./active-requests.ts";

export interface ServerContext {
  readonly generator: Generator;
  readonly clock: Clock;
  readonly log: RequestLog;
  readonly metrics: ServerMetrics;
  readonly active: ActiveRequests;
  readonly version: string;
  readonly instanceId: string;
  readonly startedMs: number;
  /** Told of bugs: what no client should see. */
  readonly onInternalError: (error: unknown, requestId: string) => void;
}
