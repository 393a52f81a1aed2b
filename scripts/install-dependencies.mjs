/**
 * `npm ci` when, and only when, it is needed. A stamp in `node_modules` holds the hash of the lockfile and all manifests; while
 * it matches, a start costs one hash of a few files.
 *
 * One process installs at a time: the others wait at `.bootstrap/install.lock`, which holds the owner's pid; the lock of a dead
 * process is broken. `.bootstrap/incomplete` exists from before `npm ci` until it succeeded, so that an interrupted install is
 * never taken for a whole one. Runs on Node 18.
 */

import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { BootstrapError, isAlive, runNpm } from "./npm-package.mjs";

/** @typedef {{ version?: string, link?: boolean, dev?: boolean, optional?: boolean, devOptional?: boolean, peer?: boolean, dependencies?: Record<string, string>, devDependencies?: Record<string, string>, optionalDependencies?: Record<string, string> }} LockEntry */

/** @param {string} root the repository */
export async function ensureDependencies(root) {
  const hash = hashOfManifests(root);
  if (isFresh(root, hash)) return;
  mkdirSync(join(root, ".bootstrap"), { recursive: true });
  const unlock = await takeLock(join(root, ".bootstrap", "install.lock"));
  try {
    if (isFresh(root, hash)) return;
    const incomplete = join(root, ".bootstrap", "incomplete");
    if (existsSync(incomplete) || !isInstalled(root)) {
      writeFileSync(incomplete, "");
      await install(root);
      rmSync(incomplete, { force: true });
    }
    writeFileSync(stampFile(root), hash);
  } finally {
    unlock();
  }
}

/** @param {string} root */
async function install(root) {
  try {
    await runNpm(
      ["ci", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"],
      root,
      "installing the dependencies of the lockfile",
    );
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new BootstrapError(
      `the dependencies could not be installed: ${reason}\nWay out: check the network, free disk space and \`npm config get registry\`, then run the same command again. After an edit of a package.json run \`npm install\` first.`,
    );
  }
}

/** @param {string} root */
function stampFile(root) {
  return join(root, "node_modules", ".kvasir-stamp");
}

/**
 * @param {string} root
 * @param {string} hash
 */
function isFresh(root, hash) {
  try {
    return readFileSync(stampFile(root), "utf8") === hash && !existsSync(join(root, ".bootstrap", "incomplete"));
  } catch {
    // No stamp: never installed, or removed.
    return false;
  }
}

/** @param {string} root */
function workspaces(root) {
  return readdirSync(join(root, "packages"))
    .sort()
    .map((name) => `packages/${name}`)
    .filter((folder) => existsSync(join(root, folder, "package.json")));
}

/** @param {string} root */
function hashOfManifests(root) {
  const hash = createHash("sha256");
  const files = ["package-lock.json", ".npmrc", "package.json", ...workspaces(root).map((folder) => `${folder}/package.json`)];
  for (const file of files)
    hash
      .update(`${file}\n`)
      .update(readFileSync(join(root, file)))
      .update("\n");
  return `${hash.update(`${process.platform}-${process.arch}`).digest("hex")}\n`;
}

/**
 * Whether what the lockfile asks for is there although the stamp is not: somebody ran `npm install` by hand.
 * @param {string} root
 */
function isInstalled(root) {
  /** @type {Record<string, LockEntry>} */
  const packages = readJson(join(root, "package-lock.json")).packages;
  for (const [path, entry] of Object.entries(packages)) {
    const manifest = join(root, path, "package.json");
    if (path.startsWith("node_modules/") && !entry.optional && !entry.devOptional && !entry.peer) {
      if (!existsSync(manifest) || (!entry.link && readJson(manifest).version !== entry.version)) return false;
    }
  }
  return [".", ...workspaces(root)].every((folder) => isLocked(join(root, folder), packages[folder === "." ? "" : folder]));
}

/**
 * Whether the lockfile knows the manifest's dependencies as they are written.
 * @param {string} folder
 * @param {LockEntry | undefined} locked
 */
function isLocked(folder, locked) {
  /** @type {LockEntry} */
  const manifest = readJson(join(folder, "package.json"));
  const kinds = /** @type {const} */ (["dependencies", "devDependencies", "optionalDependencies"]);
  return kinds.every((kind) =>
    Object.entries(manifest[kind] ?? {}).every(([name, version]) => locked?.[kind]?.[name] === version),
  );
}

/** @param {string} path */
function readJson(path) {
  return JSON.parse(readFileSync(path, "utf8"));
}

/**
 * Waits until this process owns the lock. Returns what gives it back.
 * @param {string} lock
 */
async function takeLock(lock) {
  let told = false;
  for (;;) {
    try {
      writeFileSync(lock, String(process.pid), { flag: "wx" });
      return () => rmSync(lock, { force: true });
    } catch (error) {
      if (/** @type {NodeJS.ErrnoException} */ (error).code !== "EEXIST") throw error;
    }
    if (breakStaleLock(lock)) continue;
    if (!told)
      process.stderr.write(
        `kvasir: another start (process ${ownerOf(lock)}) is installing; waiting for it (its lock: ${lock})\n`,
      );
    told = true;
    await new Promise((wake) => setTimeout(wake, 250));
  }
}

/**
 * Removes the lock of a dead process. `<lock>.break` makes sure that one process alone does it, so that nobody removes the
 * lock that a third one took in between.
 * @param {string} lock
 */
function breakStaleLock(lock) {
  if (!isStale(lock)) return false;
  const breaker = `${lock}.break`;
  try {
    mkdirSync(breaker);
  } catch {
    // Somebody else is breaking it; a breaker that died itself is swept after ten seconds.
    if (ageSeconds(breaker) > 10) rmSync(breaker, { recursive: true, force: true });
    return false;
  }
  try {
    if (isStale(lock)) rmSync(lock, { force: true });
  } finally {
    rmdirSync(breaker);
  }
  return true;
}

/** @param {string} lock */
function isStale(lock) {
  const owner = ownerOf(lock);
  if (owner === undefined) return ageSeconds(lock) > 10;
  return !isAlive(owner);
}

/** @param {string} lock */
function ownerOf(lock) {
  try {
    return Number(readFileSync(lock, "utf8")) || undefined;
  } catch {
    // The owner gave it back in between.
    return undefined;
  }
}

/** @param {string} path */
function ageSeconds(path) {
  try {
    return (Date.now() - statSync(path).mtimeMs) / 1000;
  } catch {
    // It is gone.
    return 0;
  }
}
