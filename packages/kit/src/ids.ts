/** Opaque ids: a plain string cannot be passed where an id is asked for. */

import { randomBytes } from "node:crypto";

declare const brand: unique symbol;
export type Brand<Base, Name extends string> = Base & { readonly [brand]: Name };

/** One generation request inside one server process. */
export type RequestId = Brand<string, "RequestId">;

export function newRequestId(prefix: string): RequestId {
  return `${prefix}${randomBytes(12).toString("hex")}` as RequestId;
}
