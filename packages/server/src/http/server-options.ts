/** What a server is told; every field is set, defaults are made where the configuration is read. */

export interface ServerOptions {
  readonly host: string;
  /** 0 takes any free port. */
  readonly port: number;
  /** Empty: no key is asked for. Only a loopback address may have none. */
  readonly apiKeys: readonly string[];
  /** Names that a Host header may have besides the loopback ones, without port. */
  readonly allowedHosts: readonly string[];
  /** Origins that browsers may call from, such as `https://app.example`; `*` for all. */
  readonly corsOrigins: readonly string[];
  readonly bodyLimitBytes: number;
  readonly headerLimitBytes: number;
  /** From the first byte of a request to the last of its body. */
  readonly requestTimeoutMs: number;
  readonly version: string;
}

export const defaultLimits = {
  bodyLimitBytes: 32 * 1024 * 1024,
  headerLimitBytes: 16 * 1024,
  requestTimeoutMs: 60_000,
} as const;
