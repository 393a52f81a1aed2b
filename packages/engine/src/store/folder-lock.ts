/**
 * One owner for a cache folder. The lock is the operating system's, held through an open SQLite file: it ends with its process,
 * however that ends, and a process number that is used again means nothing. The owner's number beside it is for messages only.
 */

import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { CodedError } from "@kvasir/kit";

const LOCK_FILE = "kvasir.lock";
const OWNER_FILE = "kvasir.pid";
const SQLITE_BUSY = 5;

/**
 * @returns the release
 * @throws CodedError cache_folder_in_use when a live process holds the folder; the system's own error when it cannot be locked
 */
export function lockFolder(folder: string): () => void {
  const database = tryLock(folder);
  if (!database) {
    const owner = readOwner(folder);
    throw new CodedError(
      "cache_folder_in_use",
      `The cache folder ${folder} is used by ${owner === null ? "another process" : `process ${owner}`}. Stop that server, or give this one another --cache-dir.`,
    );
  }
  const ownerFile = join(folder, OWNER_FILE);
  try {
    writeFileSync(ownerFile, String(process.pid), { mode: 0o600 });
  } catch (cause) {
    database.close();
    throw cause;
  }
  return () => {
    try {
      rmSync(ownerFile, { force: true });
    } finally {
      database.close();
    }
  };
}

/** Process number of the folder's owner, null when it is free. @throws what prevents looking */
export function folderOwner(folder: string): number | "unknown" | null {
  if (!existsSync(join(folder, LOCK_FILE))) return null;
  const database = tryLock(folder);
  if (!database) return readOwner(folder) ?? "unknown";
  database.close();
  return null;
}

/** The lock, or null when another one holds it, in this process or elsewhere. */
function tryLock(folder: string): DatabaseSync | null {
  const database = new DatabaseSync(join(folder, LOCK_FILE), { timeout: 0 });
  try {
    database.exec("PRAGMA journal_mode = MEMORY");
    database.exec("BEGIN EXCLUSIVE");
    return database;
  } catch (cause) {
    database.close();
    if (cause instanceof Error && "errcode" in cause && cause.errcode === SQLITE_BUSY) return null;
    throw cause;
  }
}

function readOwner(folder: string): number | null {
  try {
    return Number.parseInt(readFileSync(join(folder, OWNER_FILE), "utf8"), 10) || null;
  } catch {
    // The owner has just taken or released the folder.
    return null;
  }
}
