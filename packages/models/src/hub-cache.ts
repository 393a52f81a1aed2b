/**
 * The cache that all hub clients of a user share (`huggingface_hub` defines its layout):
 *
 *   models--OWNER--REPO/refs/REVISION          the commit that a branch or tag was at
 *   models--OWNER--REPO/snapshots/COMMIT/FILE  a link to the content
 *   models--OWNER--REPO/blobs/SHA256           the content, once
 *
 * A blob appears under its name only when it is whole; a link only when its blob is there.
 */

import { copyFile, lstat, mkdir, readdir, readFile, realpath, rm, rmdir, stat, symlink, writeFile } from "node:fs/promises";
import { dirname, join, relative, sep } from "node:path";
import type { HubFile } from "./hub-repository.ts";

const commitForm = /^[0-9a-f]{40}$/;

export interface CachedFile {
  readonly path: string;
  readonly bytes: number;
  /** Where the content is: the blob, or the file itself where links are not possible. */
  readonly blobPath: string;
}

export class HubCache {
  readonly #folder: string;
  readonly repo: string;

  constructor(cacheFolder: string, repo: string) {
    this.repo = repo;
    this.#folder = join(cacheFolder, `models--${repo.replaceAll("/", "--")}`);
  }

  blobPath(file: HubFile): string {
    return join(this.#folder, "blobs", file.blobName);
  }

  snapshotPath(commit: string, file: string): string {
    return join(this.#folder, "snapshots", commit, ...file.split("/"));
  }

  /** The commit that the revision was at when it was last asked for, or null. */
  async commitOf(revision: string): Promise<string | null> {
    if (commitForm.test(revision)) return revision;
    try {
      return (await readFile(join(this.#folder, "refs", ...revision.split("/")), "utf8")).trim();
    } catch {
      // never asked for
      return null;
    }
  }

  async rememberRevision(revision: string, commit: string): Promise<void> {
    if (commitForm.test(revision)) return;
    const path = join(this.#folder, "refs", ...revision.split("/"));
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, commit);
  }

  async commits(): Promise<string[]> {
    return (await listFolder(join(this.#folder, "snapshots"))).filter((name) => commitForm.test(name));
  }

  /** Files of a snapshot whose content is there, by path in the repository. */
  async files(commit: string): Promise<Map<string, CachedFile>> {
    const root = join(this.#folder, "snapshots", commit);
    const files = new Map<string, CachedFile>();
    for (const name of await listFolder(root, true)) {
      const path = join(root, name);
      try {
        const stats = await stat(path);
        if (stats.isFile()) files.set(name.split(sep).join("/"), { path, bytes: stats.size, blobPath: await realpath(path) });
      } catch {
        // a link whose content was removed
      }
    }
    return files;
  }

  /** Puts a link to the blob into the snapshot, or a copy where the system allows no links. */
  async link(commit: string, file: HubFile): Promise<string> {
    const path = this.snapshotPath(commit, file.path);
    await mkdir(dirname(path), { recursive: true });
    await rm(path, { force: true });
    const target = relative(dirname(path), this.blobPath(file));
    try {
      await symlink(target, path);
    } catch (error) {
      if (isExisting(error)) return path;
      await copyFile(this.blobPath(file), path);
    }
    return path;
  }

  /** Removes files with everything in this repository's cache that leads to them. Returns the bytes that became free. */
  async remove(files: readonly CachedFile[]): Promise<number> {
    const blobs = new Set(files.map((file) => file.blobPath));
    let freedBytes = 0;
    for (const file of files) freedBytes += file.bytes;
    for (const commit of await this.commits()) {
      for (const file of (await this.files(commit)).values()) {
        if (blobs.has(file.blobPath)) await rm(file.path, { force: true });
      }
    }
    for (const blob of blobs) await rm(blob, { force: true });
    await this.#removeEmptyFolders(this.#folder);
    const commits = new Set(await this.commits());
    for (const name of await listFolder(join(this.#folder, "refs"), true)) {
      const path = join(this.#folder, "refs", name);
      if ((await lstat(path)).isFile() && !commits.has((await readFile(path, "utf8")).trim())) await rm(path, { force: true });
    }
    await this.#removeEmptyFolders(this.#folder);
    return freedBytes;
  }

  async #removeEmptyFolders(folder: string): Promise<void> {
    for (const name of await listFolder(folder)) {
      const path = join(folder, name);
      if ((await lstat(path)).isDirectory()) await this.#removeEmptyFolders(path);
    }
    if ((await listFolder(folder)).length === 0 && (await exists(folder))) await rmdir(folder);
  }
}

/** `owner/repo` of every repository in the cache folder. */
export async function cachedRepositories(cacheFolder: string): Promise<string[]> {
  return (await listFolder(cacheFolder)).flatMap((name) => {
    const [kind, owner, ...rest] = name.split("--");
    return kind === "models" && owner && rest.length > 0 ? [`${owner}/${rest.join("--")}`] : [];
  });
}

async function listFolder(folder: string, recursive = false): Promise<string[]> {
  try {
    return (await readdir(folder, { recursive })).sort();
  } catch {
    // not there: empty
    return [];
  }
}

async function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}

function isExisting(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "EEXIST";
}
