/** ABI check 1: the files are the ones that this program was tested with. */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { CodedError, messageOf } from "@kvasir/kit";
import table from "../abi/library-hashes.json" with { type: "json" };
import type { LibraryLocation } from "./library-location.ts";

/** By package name, then file name: SHA-256 in lower-case hex. */
export type HashTable = Readonly<Record<string, Readonly<Record<string, string>>>>;

export type Verification =
  /** All three files are in the table. */
  | "verified"
  /** The table knows nothing about this package or directory, and the user allowed that. */
  | "unverified";

export const libraryHashes: HashTable = table.packages;

/**
 * Compares libllama, libggml and libggml-base (about 6 MB, some 10 ms) with the table. A directory that the user named is
 * compared with every package of the table.
 * @throws CodedError library_mismatch with the file and both hashes, or that the library is unknown
 */
export function verifyLibraryFiles(
  location: LibraryLocation,
  allowUnverified: boolean,
  hashes: HashTable = libraryHashes,
): Verification {
  const files = [location.llama, location.ggml, location.ggmlBase];
  const known = location.packageName === null ? undefined : hashes[location.packageName];
  if (known === undefined) {
    const actual = files.map((file) => ({ name: basename(file), hash: sha256(file) }));
    if (Object.values(hashes).some((entry) => actual.every(({ name, hash }) => entry[name] === hash))) return "verified";
    if (allowUnverified) return "unverified";
    throw new CodedError(
      "library_mismatch",
      `${location.packageName ?? location.directory} is not in the table of tested libraries, so its files cannot be verified. ` +
        "Allow unverified libraries to run it anyway; the other checks of its interface stay on.",
    );
  }
  for (const file of files) {
    const name = basename(file);
    const hash = sha256(file);
    if (known[name] === hash) continue;
    throw new CodedError(
      "library_mismatch",
      `${file} has SHA-256 ${hash}, expected ${known[name] ?? "no such file"}: it is not the tested ${name} of ${location.packageName}. Reinstall the pinned packages (npm ci).`,
    );
  }
  return "verified";
}

function sha256(file: string): string {
  try {
    return createHash("sha256").update(readFileSync(file)).digest("hex");
  } catch (error) {
    throw new CodedError(
      "library_missing",
      `${file} cannot be read (${messageOf(error)}). Reinstall the pinned packages (npm ci).`,
      {
        cause: error,
      },
    );
  }
}
