/**
 * Who may ask. A server on loopback trusts its machine but not the web pages that the machine's browser shows: the Host header
 * keeps out DNS rebinding, the Origin header keeps out cross-site requests. Any other address demands a key.
 */

import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { CodedError } from "@kvasir/kit";
import type { ServerOptions } from "./server-options.ts";

const LOOPBACK_NAMES: readonly string[] = ["localhost", "127.0.0.1", "[::1]"];

/** Whether an address that a server binds to can only be reached from its own machine. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(?:\.\d{1,3}){3}$/.test(host);
}

export class AccessRules {
  readonly #options: Pick<ServerOptions, "host" | "allowedHosts" | "corsOrigins">;
  readonly #keyDigests: readonly Buffer[];

  /** @throws CodedError invalid_configuration for an open address without a key */
  constructor(options: Pick<ServerOptions, "host" | "apiKeys" | "allowedHosts" | "corsOrigins">) {
    if (!isLoopback(options.host) && options.apiKeys.length === 0) {
      throw new CodedError(
        "invalid_configuration",
        `The address ${options.host} can be reached from other machines, so an API key is needed. Set one, or bind to 127.0.0.1.`,
      );
    }
    this.#options = options;
    this.#keyDigests = options.apiKeys.map(digest);
  }

  /** @throws CodedError host_not_allowed */
  checkHost(header: string | undefined): void {
    if (!isLoopback(this.#options.host)) return;
    const name = nameOf(header ?? "");
    if (LOOPBACK_NAMES.includes(name) || this.#options.allowedHosts.some((allowed) => allowed.toLowerCase() === name)) return;
    throw new CodedError(
      "host_not_allowed",
      `The Host header is ${JSON.stringify(header ?? "").slice(0, 100)}; this server answers to ${[...LOOPBACK_NAMES, ...this.#options.allowedHosts].join(", ")}. Add the name to the allowed hosts if it is yours.`,
    );
  }

  /**
   * Whether a browser page of that origin may read answers; false for no origin or the server's own.
   * @throws CodedError origin_not_allowed
   */
  checkOrigin(origin: string | undefined, host: string | undefined): boolean {
    if (origin === undefined) return false;
    const { corsOrigins } = this.#options;
    if (corsOrigins.includes("*") || corsOrigins.includes(origin)) return true;
    if (URL.canParse(origin) && new URL(origin).host === host) return false;
    throw new CodedError(
      "origin_not_allowed",
      `Pages of ${JSON.stringify(origin).slice(0, 100)} may not call this server. Add the origin to the CORS origins if it is yours.`,
    );
  }

  /** Takes `Authorization: Bearer KEY` and `x-api-key: KEY`. @throws CodedError missing_api_key, invalid_api_key */
  checkKey(headers: IncomingHttpHeaders): void {
    if (this.#keyDigests.length === 0) return;
    const key = keyOf(headers);
    if (key === null) {
      throw new CodedError(
        "missing_api_key",
        "This server needs an API key. Send it as `Authorization: Bearer KEY` or as `x-api-key: KEY`.",
      );
    }
    const given = digest(key);
    // All are compared, so the time tells nothing about which one was close.
    const matches = this.#keyDigests.filter((known) => timingSafeEqual(known, given));
    if (matches.length === 0) throw new CodedError("invalid_api_key", "The API key is not one of this server's keys.");
  }
}

function keyOf(headers: IncomingHttpHeaders): string | null {
  const bearer = /^Bearer +(\S+) *$/i.exec(headers.authorization ?? "")?.[1];
  if (bearer !== undefined) return bearer;
  const header = headers["x-api-key"];
  return typeof header === "string" && header !== "" ? header : null;
}

/** Digests have one length, whatever the key's. */
function digest(key: string): Buffer {
  return createHash("sha256").update(key).digest();
}

/** `LOCALHOST:8484` → `localhost`, `[::1]:8484` → `[::1]` */
function nameOf(host: string): string {
  return host.toLowerCase().replace(/:\d+$/, "");
}
