/** The environment variables that every client of the Hugging Face hub honours, read once. */

import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { CodedError } from "@kvasir/kit";

export type Environment = Readonly<Record<string, string | undefined>>;

export interface HubEnvironment {
  /** Without a slash at the end. */
  readonly endpoint: string;
  readonly token: string | null;
  /** No request is made; only the cache is used. */
  readonly offline: boolean;
  readonly cacheFolder: string;
}

const DEFAULT_ENDPOINT = "https://huggingface.co";

/**
 * HF_ENDPOINT, HF_TOKEN (or the token file that `hf auth login` writes, at HF_TOKEN_PATH), HF_HUB_DISABLE_IMPLICIT_TOKEN,
 * HF_HUB_OFFLINE, HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME.
 * @throws CodedError invalid_configuration for an endpoint that is not an http address
 */
export async function readHubEnvironment(env: Environment): Promise<HubEnvironment> {
  const home = env["HF_HOME"] || join(env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "huggingface");
  const endpoint = (env["HF_ENDPOINT"] || DEFAULT_ENDPOINT).replace(/\/+$/, "");
  if (!URL.canParse(endpoint) || !/^https?:$/.test(new URL(endpoint).protocol)) {
    throw new CodedError("invalid_configuration", `HF_ENDPOINT is "${endpoint}", it must be an http or https address`);
  }
  return {
    endpoint,
    token: await readToken(env, home),
    offline: isOn(env["HF_HUB_OFFLINE"]) || isOn(env["TRANSFORMERS_OFFLINE"]),
    cacheFolder: env["HF_HUB_CACHE"] || env["HUGGINGFACE_HUB_CACHE"] || join(home, "hub"),
  };
}

async function readToken(env: Environment, home: string): Promise<string | null> {
  const explicit = env["HF_TOKEN"] || env["HUGGING_FACE_HUB_TOKEN"];
  if (explicit) return explicit.trim();
  if (isOn(env["HF_HUB_DISABLE_IMPLICIT_TOKEN"])) return null;
  try {
    return (await readFile(env["HF_TOKEN_PATH"] || join(home, "token"), "utf8")).trim() || null;
  } catch {
    // nobody has logged in
    return null;
  }
}

function isOn(value: string | undefined): boolean {
  return /^(1|on|yes|true)$/i.test(value ?? "");
}
