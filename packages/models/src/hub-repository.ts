/** What a hub repository holds, asked with the hub's own client. */

import { downloadFile, HubApiError, listFiles, modelInfo } from "@huggingface/hub";
import { CodedError, messageOf } from "@kvasir/kit";
import type { HubEnvironment } from "./hub-environment.ts";

export interface HubFile {
  /** Path in the repository, with slashes. */
  readonly path: string;
  readonly bytes: number;
  /** null for a small file that is stored in git itself. */
  readonly sha256: string | null;
  /** Name of the file's content in the hub cache. */
  readonly blobName: string;
}

export interface HubListing {
  readonly commit: string;
  readonly files: readonly HubFile[];
}

export class HubRepository {
  readonly #environment: HubEnvironment;
  readonly #signal: AbortSignal | undefined;
  readonly name: string;

  constructor(name: string, environment: HubEnvironment, signal?: AbortSignal) {
    this.name = name;
    this.#environment = environment;
    this.#signal = signal;
  }

  /** @throws CodedError model_download_failed: no such repository, no access, no connection */
  async list(revision: string): Promise<HubListing> {
    const common = { hubUrl: this.#environment.endpoint, fetch: this.#fetch };
    try {
      const { sha } = await modelInfo({ ...common, name: this.name, revision, additionalFields: ["sha"] });
      const files: HubFile[] = [];
      for await (const entry of listFiles({ ...common, repo: this.name, recursive: true, revision: sha })) {
        if (entry.type !== "file" || !isSafePath(entry.path)) continue;
        files.push({
          path: entry.path,
          bytes: entry.lfs?.size ?? entry.size,
          sha256: entry.lfs?.oid ?? null,
          blobName: entry.lfs?.oid ?? entry.oid ?? "",
        });
      }
      return { commit: sha, files };
    } catch (error) {
      throw this.#explain(error, `revision "${revision}"`);
    }
  }

  /** Content of a file from the byte `start` on. @throws CodedError model_download_failed */
  async open(file: HubFile, commit: string, start: number): Promise<AsyncIterable<Uint8Array>> {
    try {
      const blob = await downloadFile({
        repo: this.name,
        path: file.path,
        revision: commit,
        hubUrl: this.#environment.endpoint,
        fetch: this.#fetch,
      });
      if (!blob) throw new CodedError("model_download_failed", `${this.name} has no file ${file.path} at commit ${commit}`);
      return start === 0 ? blob.stream() : blob.slice(start, file.bytes).stream();
    } catch (error) {
      throw this.#explain(error, file.path);
    }
  }

  /** Sends the token to the hub alone, never to the storage that the hub redirects to. */
  readonly #fetch: typeof fetch = async (input, init) => {
    const headers = new Headers(init?.headers);
    const url = new URL(input instanceof Request ? input.url : input);
    const { token, endpoint } = this.#environment;
    if (token !== null && url.origin === new URL(endpoint).origin) headers.set("Authorization", `Bearer ${token}`);
    return fetch(input, { ...init, headers, ...(this.#signal ? { signal: this.#signal } : {}) });
  };

  #explain(error: unknown, what: string): CodedError {
    if (error instanceof CodedError) return error;
    return new CodedError("model_download_failed", `${this.#environment.endpoint}/${this.name}: ${this.#reason(error, what)}`, {
      cause: error,
    });
  }

  #reason(error: unknown, what: string): string {
    if (!(error instanceof HubApiError)) return connectionReason(error);
    switch (error.statusCode) {
      case 401:
      case 403:
        return this.#environment.token === null
          ? "access needs a login, or there is no such repository; set HF_TOKEN (and accept the licence on the repository's page)"
          : "the token in use has no access, or there is no such repository; accept the licence on the repository's page";
      case 404:
        return `there is no such repository, or it has no ${what}`;
      case 429:
        return "the hub asks to slow down; try again in a few minutes";
      default:
        return `the hub answered with status ${error.statusCode}`;
    }
  }
}

/** `fetch failed` alone says nothing: the cause does. */
export function connectionReason(error: unknown): string {
  const message = messageOf(error);
  const cause = error instanceof Error && error.cause !== undefined ? messageOf(error.cause) : "";
  return cause && cause !== message ? `${message} (${cause})` : message;
}

/** Paths come from whoever wrote the repository and are joined onto folders here. */
function isSafePath(path: string): boolean {
  return (
    !/[\\\0]/.test(path) &&
    !path.startsWith("/") &&
    !/^[a-z]:/i.test(path) &&
    path.split("/").every((part) => part !== ".." && part !== "")
  );
}
