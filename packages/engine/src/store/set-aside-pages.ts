/**
 * Pages of other models, KV formats or library versions in the same cache folder. They are never read, but they take room in
 * the folder's budget: when it is needed they go before any page that can still be used, the model unused for longest first,
 * its last written pages first (tails are written after their heads).
 */

import { rmSync, statSync } from "node:fs";
import { fingerprintFolders, pageFilesIn } from "./page-folder.ts";

interface SetAsideFile {
  readonly path: string;
  readonly bytes: number;
  readonly writtenMs: number;
}

export class SetAsidePages {
  /** The next to go last. */
  readonly #files: SetAsideFile[];
  #bytes = 0;

  constructor(root: string, fingerprint: string) {
    this.#files = fingerprintFolders(root)
      .filter((name) => name !== fingerprint)
      .map((name) => filesByAge(root, name))
      .sort((one, other) => lastWriteMs(other) - lastWriteMs(one))
      .flat();
    for (const { bytes } of this.#files) this.#bytes += bytes;
  }

  get fileCount(): number {
    return this.#files.length;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Removes the next file. @returns false when none is left */
  removeOne(): boolean {
    const file = this.#files.pop();
    if (!file) return false;
    this.#bytes -= file.bytes;
    try {
      rmSync(file.path, { force: true });
    } catch {
      // Not removable, and not ours to count any longer.
    }
    return true;
  }
}

function filesByAge(root: string, fingerprint: string): SetAsideFile[] {
  return pageFilesIn(root, fingerprint)
    .pages.flatMap((path) => {
      const stats = statSync(path, { throwIfNoEntry: false });
      return stats ? [{ path, bytes: stats.size, writtenMs: stats.mtimeMs }] : [];
    })
    .sort((one, other) => one.writtenMs - other.writtenMs);
}

function lastWriteMs(files: readonly SetAsideFile[]): number {
  return files.at(-1)?.writtenMs ?? 0;
}
