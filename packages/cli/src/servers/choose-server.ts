/** Which running server `status`, `stop` and `logs` mean. */

import { CodedError } from "@kvasir/kit";
import type { ServerState } from "./server-state.ts";

/**
 * The server on `port`, or the only one.
 * @throws CodedError server_not_running, or invalid_configuration when several run and no port says which
 */
export function chooseServer(states: readonly ServerState[], port: number | null): ServerState {
  const candidates = port === null ? states : states.filter((state) => state.port === port);
  const [first, ...others] = candidates;
  if (first === undefined) {
    const where = port === null ? "" : ` on port ${port}`;
    const running =
      states.length === 0 ? "Start one with `kvasir start`" : `Running: ${states.map(({ address }) => address).join(", ")}`;
    throw new CodedError("server_not_running", `No Kvasir server runs${where}. ${running}.`);
  }
  if (others.length > 0 && port === null) {
    const list = candidates.map((state) => `--port ${state.port} (${state.model}, process ${state.pid})`).join(", ");
    throw new CodedError("invalid_configuration", `${candidates.length} servers run; say which one: ${list}.`, {
      param: "port",
    });
  }
  return first;
}
