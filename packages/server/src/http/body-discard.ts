/**
 * What a client still sends after it was refused. Closing at once would reset the connection, and the client would see the
 * reset instead of the answer; so the rest is read and dropped, up to a limit.
 */

import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";

const refused = new WeakSet<Socket>();

/** Call before the answer is sent. A body that has arrived needs nothing. */
export function discardBody(request: IncomingMessage, limitBytes: number): void {
  if (request.complete) return;
  refused.add(request.socket);
  let discarded = 0;
  request.on("data", (bytes: Buffer) => {
    discarded += bytes.length;
    if (discarded > limitBytes) request.socket.destroy();
  });
  request.on("end", () => refused.delete(request.socket));
  request.resume();
}

/** Whether the connection still carries the body of a request that has been answered. */
export function discardsBody(socket: Socket): boolean {
  return refused.has(socket);
}
