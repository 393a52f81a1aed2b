/**
 * Brings files of a hub repository into the shared hub cache. An interrupted download goes on where it ended, also in a later
 * run: its partial file bears the name that other hub clients use.
 */

import { stat } from "node:fs/promises";
import { setTimeout as wait } from "node:timers/promises";
import { HubApiError } from "@huggingface/hub";
import { type Clock, CodedError } from "@kvasir/kit";
import { withFileLock } from "./file-lock.ts";
import type { HubCache } from "./hub-cache.ts";
import { connectionReason, type HubFile, type HubRepository } from "./hub-repository.ts";
import { type OnProgress, ProgressMeter } from "./pull-progress.ts";
import { receiveFile } from "./received-file.ts";

export interface DownloadOptions {
  readonly clock: Clock;
  readonly onProgress: OnProgress;
  readonly signal?: AbortSignal;
}

const MOST_FRUITLESS_ATTEMPTS = 3;
const RETRY_MS = 500;

/**
 * @returns path of the file in the snapshot
 * @throws CodedError model_download_failed, model_checksum_mismatch
 */
export async function downloadToCache(
  repository: HubRepository,
  cache: HubCache,
  commit: string,
  file: HubFile,
  options: DownloadOptions,
): Promise<string> {
  const blobPath = cache.blobPath(file);
  const source = `hub ${repository.name}`;
  const waiting = (): void =>
    options.onProgress({
      label: file.path,
      bytes: 0,
      totalBytes: file.bytes,
      bytesPerSecond: 0,
      source: "another process loads it",
    });
  await withFileLock(
    `${blobPath}.kvasir-lock`,
    { onWaiting: waiting, ...(options.signal ? { signal: options.signal } : {}) },
    async () => {
      if (await hasSize(blobPath, file.bytes)) return;
      const meter = new ProgressMeter(options.clock, options.onProgress, { label: file.path, totalBytes: file.bytes, source });
      const target = {
        finalPath: blobPath,
        partialPath: `${blobPath}.incomplete`,
        bytes: file.bytes,
        sha256: file.sha256,
        label: file.path,
      };
      for (let fruitless = 0; ; ) {
        const before = await sizeOf(target.partialPath);
        const failure = await attempt(() => receiveFile(target, (start) => repository.open(file, commit, start), meter), file);
        if (failure === null) return;
        options.signal?.throwIfAborted();
        fruitless = (await sizeOf(target.partialPath)) > before ? 0 : fruitless + 1;
        if (fruitless >= MOST_FRUITLESS_ATTEMPTS || !failure.mayPass) throw failure.error;
        await wait(RETRY_MS * 2 ** fruitless, undefined, options.signal ? { signal: options.signal } : {});
      }
    },
  );
  return cache.link(commit, file);
}

interface FailedAttempt {
  readonly error: CodedError;
  /** A connection that broke may hold the next time; what the hub or the disk refused will be refused again. */
  readonly mayPass: boolean;
}

async function attempt(receive: () => Promise<boolean>, file: HubFile): Promise<FailedAttempt | null> {
  try {
    if (await receive()) return null;
    return { error: new CodedError("model_download_failed", `${file.path}: the connection ended too early`), mayPass: true };
  } catch (error) {
    if (error instanceof CodedError)
      return { error, mayPass: error.code === "model_download_failed" && isConnectionError(error.cause) };
    const coded = new CodedError("model_download_failed", `${file.path}: ${connectionReason(error)}`, { cause: error });
    return { error: coded, mayPass: isConnectionError(error) };
  }
}

const diskErrors: ReadonlySet<unknown> = new Set(["ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "EIO"]);

function isConnectionError(error: unknown): boolean {
  if (error === undefined) return false;
  if (error instanceof HubApiError) return error.statusCode >= 500;
  return !(error instanceof Error && "code" in error && diskErrors.has(error.code));
}

async function sizeOf(path: string): Promise<number> {
  return stat(path).then(
    (stats) => stats.size,
    () => 0,
  );
}

async function hasSize(path: string, bytes: number): Promise<boolean> {
  return (await sizeOf(path)) === bytes;
}
