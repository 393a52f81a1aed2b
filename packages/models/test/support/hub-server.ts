/**
 * A hub on loopback that speaks the part of the protocol which the hub's client uses: revision, tree listing in pages, and
 * `resolve`, which redirects to storage on another origin (`localhost` instead of `127.0.0.1`) that serves ranges.
 */

import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";

export interface HubRequest {
  readonly path: string;
  readonly range: string | null;
  readonly authorization: string | null;
  readonly onStorage: boolean;
}

export interface HubServer {
  readonly endpoint: string;
  readonly requests: HubRequest[];
  /** Commit that every branch is at. */
  readonly commit: string;
  /** What the repository holds; may be changed at any time. */
  readonly files: Map<string, Buffer>;
  /** Called before storage answers a full or ranged request for content; may answer itself and return true. */
  interceptContent: (path: string, response: ServerResponse, content: Buffer) => boolean;
  /** Status of every answer of the hub itself; 200 means normal. */
  status: number;
}

const PAGE_FILES = 2;

export async function startHub(repo: string, files: Readonly<Record<string, Buffer>>): Promise<HubServer> {
  const hub: HubServer & { endpoint: string } = {
    endpoint: "",
    requests: [],
    commit: createHash("sha1").update(repo).digest("hex"),
    files: new Map(Object.entries(files)),
    interceptContent: () => false,
    status: 200,
  };
  const server = createServer((request, response) => answer(hub, repo, request, response));
  await new Promise<void>((resolve) => server.listen(0, () => resolve()));
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  hub.endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return hub;
}

function answer(hub: HubServer, repo: string, request: IncomingMessage, response: ServerResponse): void {
  const url = new URL(request.url ?? "/", hub.endpoint);
  const onStorage = (request.headers.host ?? "").startsWith("localhost");
  hub.requests.push({
    path: url.pathname,
    range: request.headers.range ?? null,
    authorization: request.headers.authorization ?? null,
    onStorage,
  });
  if (onStorage) return answerStorage(hub, url, request, response);
  if (hub.status !== 200) return json(response, hub.status, { error: `status ${hub.status}` });
  const revision = new RegExp(`^/api/models/${repo}/revision/([^/]+)$`).exec(url.pathname);
  const tree = new RegExp(`^/api/models/${repo}/tree/([^/]+)$`).exec(url.pathname);
  const resolve = new RegExp(`^/${repo}/resolve/([^/]+)/(.+)$`).exec(url.pathname);
  if (revision) {
    const asked = decodeURIComponent(revision[1] ?? "");
    if (asked !== "main" && asked !== hub.commit) return json(response, 404, { error: "Invalid rev id" });
    return json(response, 200, { _id: "1", id: repo, sha: hub.commit, private: false, gated: false, likes: 0, downloads: 0 });
  }
  if (tree) return listTree(hub, url, response);
  if (resolve) {
    const location = `${hub.endpoint.replace("127.0.0.1", "localhost")}/storage/${resolve[2]}`;
    response.writeHead(302, { location, "x-repo-commit": hub.commit }).end();
    return;
  }
  json(response, 404, { error: "Repository not found" });
}

function listTree(hub: HubServer, url: URL, response: ServerResponse): void {
  const start = Number(url.searchParams.get("cursor") ?? 0);
  const entries = [...hub.files].map(([path, content]) => {
    const oid = sha256(content);
    return {
      type: "file",
      path,
      size: content.length,
      oid: oid.slice(0, 40),
      lfs: { oid, size: content.length, pointerSize: 135 },
    };
  });
  const next = start + PAGE_FILES;
  if (next < entries.length) {
    const link = new URL(url);
    link.searchParams.set("cursor", String(next));
    response.setHeader("link", `<${link.href}>; rel="next"`);
  }
  json(response, 200, entries.slice(start, next));
}

function answerStorage(hub: HubServer, url: URL, request: IncomingMessage, response: ServerResponse): void {
  const path = decodeURIComponent(url.pathname.slice("/storage/".length));
  const content = hub.files.get(path);
  if (!content) return json(response, 404, { error: "no such file" });
  const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
  const start = Number(range?.[1] ?? 0);
  const end = range?.[2] ? Number(range[2]) + 1 : content.length;
  const isProbe = range !== null && end === 1;
  const part = content.subarray(start, end);
  if (!isProbe && hub.interceptContent(path, response, part)) return;
  response.writeHead(range ? 206 : 200, {
    "content-length": part.length,
    etag: `"${sha256(content)}"`,
    // with this the client asks the storage directly the next time
    "x-cache": "Hit from cloudfront",
    ...(range ? { "content-range": `bytes ${start}-${end - 1}/${content.length}` } : {}),
  });
  response.end(part);
}

function json(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}

export function sha256(content: Buffer): string {
  return createHash("sha256").update(content).digest("hex");
}
