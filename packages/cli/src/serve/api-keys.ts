/** The keys that requests must carry, and the rule that an address which others can reach needs one. */

import { readFileSync } from "node:fs";
import { CodedError, messageOf } from "@kvasir/kit";
import { isLoopback } from "@kvasir/server";
import type { Configuration } from "../config/options.ts";

/** @throws CodedError invalid_configuration for an unreadable or empty key file, or an open address without a key */
export function readApiKeys({ apiKey, apiKeyFile, host }: Pick<Configuration, "apiKey" | "apiKeyFile" | "host">): string[] {
  const keys = [apiKey, apiKeyFile === null ? null : keyInFile(apiKeyFile)].filter((key) => key !== null);
  const unusable = keys.find((key) => !/^[\x21-\x7e]+$/.test(key));
  if (unusable !== undefined) {
    throw new CodedError(
      "invalid_configuration",
      "The API key has characters that an HTTP header cannot carry; use letters, digits and punctuation without spaces.",
      {
        param: "apiKey",
      },
    );
  }
  if (keys.length === 0 && !isLoopback(host)) {
    throw new CodedError(
      "invalid_configuration",
      `--host ${host} can be reached from other machines, so an API key is needed: give --api-key-file FILE (or KVASIR_API_KEY), or leave --host out to listen on 127.0.0.1 only.`,
      { param: "host" },
    );
  }
  return keys;
}

function keyInFile(path: string): string {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    throw new CodedError(
      "invalid_configuration",
      `--api-key-file ${path} cannot be read (${messageOf(error)}); give a file whose first line is the key.`,
      {
        param: "apiKeyFile",
        cause: error,
      },
    );
  }
  const [first = ""] = text.split(/\r?\n/);
  const key = first.trim();
  if (key !== "") return key;
  throw new CodedError("invalid_configuration", `--api-key-file ${path} has an empty first line; it must hold the key.`, {
    param: "apiKeyFile",
  });
}
