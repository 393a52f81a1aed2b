/**
 * Python packages for tests, in the cache folder, one folder per exact version and Python: installed once, by the machine's own pip, so
 * that its mirrors and proxies work. A folder appears whole or not at all.
 */

import { execFile } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

export interface PythonWithPackages {
  readonly command: string;
  readonly environment: NodeJS.ProcessEnv;
}

const run = promisify(execFile);

/**
 * A Python that can import `requirement` (`openai==3.57.0`).
 * @returns why there is none, when this machine has no Python or no pip
 * @throws when pip is there and fails
 */
export async function pythonWith(requirement: string): Promise<PythonWithPackages | { readonly missing: string }> {
  const command = process.platform === "win32" ? "python" : "python3";
  let version: string;
  try {
    const { stdout } = await run(command, ["-c", "import sys; print('%d.%d' % sys.version_info[:2])"]);
    version = stdout.trim();
    await run(command, ["-m", "pip", "--version"]);
  } catch (error) {
    return { missing: `${command} with pip is not there: ${String(error).split("\n")[0]}` };
  }
  const parent = join(process.env["KVASIR_CACHE_DIR"] || join(homedir(), ".cache", "kvasir"), "test-python");
  const folder = join(parent, `${requirement.replace("==", "-")}-py${version}-${process.platform}-${process.arch}`);
  if (!existsSync(folder)) await install(command, requirement, parent, folder);
  return { command, environment: { ...process.env, PYTHONPATH: folder, PYTHONDONTWRITEBYTECODE: "1" } };
}

async function install(command: string, requirement: string, parent: string, folder: string): Promise<void> {
  mkdirSync(parent, { recursive: true });
  const work = mkdtempSync(join(parent, ".installing-"));
  try {
    const options = ["--quiet", "--disable-pip-version-check", "--no-compile", "--only-binary", ":all:", "--target", work];
    await run(command, ["-m", "pip", "install", ...options, requirement]);
    if (!existsSync(folder)) renameSync(work, folder);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}
