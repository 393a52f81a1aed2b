import { existsSync } from "node:fs";
import { lstat, mkdir, readdir, readFile, readlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { downloadFileToCacheDir } from "@huggingface/hub";
import { describe, expect, it } from "vitest";
import type { PullProgress } from "../src/pull-progress.ts";
import { findModelPath, pullModel, resolveModel } from "../src/resolve-model.ts";
import { listModels, removeModel } from "../src/stored-models.ts";
import { codedErrorOf } from "./support/coded-errors.ts";
import { temporaryFolder } from "./support/folders.ts";
import { tinyModel, writeGguf } from "./support/gguf-writer.ts";
import { type HubServer, sha256, startHub } from "./support/hub-server.ts";

const q4 = writeGguf({ ...tinyModel("llama"), tensors: [{ name: "w", shape: [4096, 200], type: 0, bytes: 4096 * 800 }] });
const q8 = writeGguf(tinyModel("llama", { "general.name": { string: "eight" } }));
const shard = (number: number): Buffer =>
  writeGguf(tinyModel("llama", { "split.count": { u32: 2 }, "split.no": { u32: number - 1 } }));
const repo = "owner/tiny-GGUF";
const files = {
  "README.md": Buffer.from("hello"),
  "tiny-Q4_K_M.gguf": q4,
  "tiny-Q8_0.gguf": q8,
  "F16/tiny-F16-00001-of-00002.gguf": shard(1),
  "F16/tiny-F16-00002-of-00002.gguf": shard(2),
};

interface Setup {
  readonly hub: HubServer;
  readonly home: string;
  readonly repoFolder: string;
  readonly options: { readonly cacheDir: string; readonly env: Record<string, string>; onProgress?: (p: PullProgress) => void };
}

async function setUp(extraEnv: Record<string, string> = {}): Promise<Setup> {
  const hub = await startHub(repo, files);
  const home = await temporaryFolder();
  const options = { cacheDir: join(home, "kvasir"), env: { HF_ENDPOINT: hub.endpoint, HF_HOME: home, ...extraEnv } };
  return { hub, home, repoFolder: join(home, "hub", "models--owner--tiny-GGUF"), options };
}

describe("a model of the hub", () => {
  it("arrives in the layout that all hub clients share", async () => {
    const { hub, options, repoFolder } = await setUp();
    const model = await resolveModel(`hf:${repo}:q8_0`, options);
    expect(model).toMatchObject({
      id: "tiny-Q8_0",
      name: "eight",
      source: { kind: "hub", repo, commit: hub.commit, file: "tiny-Q8_0.gguf" },
      path: join(repoFolder, "snapshots", hub.commit, "tiny-Q8_0.gguf"),
    });
    expect(await readFile(join(repoFolder, "refs", "main"), "utf8")).toBe(hub.commit);
    expect(await readlink(model.path)).toBe(join("..", "..", "blobs", sha256(q8)));
    expect(await readdir(join(repoFolder, "blobs"))).toEqual([sha256(q8)]);
    // the library's own cache function finds it there by commit, without a request
    const requests = hub.requests.length;
    const cacheDir = join(repoFolder, "..");
    const found = await downloadFileToCacheDir({
      repo,
      path: "tiny-Q8_0.gguf",
      revision: hub.commit,
      hubUrl: hub.endpoint,
      cacheDir,
    });
    expect(found).toBe(model.path);
    expect(hub.requests).toHaveLength(requests);
  });

  it("is not asked for again once it is in the cache, also offline", async () => {
    const { hub, options } = await setUp();
    expect(await findModelPath(`hf:${repo}`, options)).toBe(null);
    const first = await resolveModel(`hf:${repo}`, options);
    expect(first.id).toBe("tiny-Q4_K_M");
    expect(await findModelPath(`hf:${repo}`, options)).toBe(first.path);
    const requests = hub.requests.length;
    expect(await resolveModel(`hf:${repo}`, options)).toEqual(first);
    const offline = { ...options, env: { ...options.env, HF_HUB_OFFLINE: "1" } };
    expect(await resolveModel(`hf:${repo}:Q4_K_M`, offline)).toEqual(first);
    expect(await pullModel(`hf:${repo}`, offline)).toEqual(first);
    expect(hub.requests).toHaveLength(requests);
  });

  it("comes with all its shards", async () => {
    const { options } = await setUp();
    const model = await resolveModel(`hf:${repo}:f16`, options);
    expect(model.id).toBe("tiny-F16");
    expect(model.shards).toHaveLength(2);
    expect(model.facts.shardCount).toBe(2);
    for (const path of model.shards) expect(existsSync(path)).toBe(true);
  });

  it("reports progress up to the whole", async () => {
    const { options } = await setUp();
    const reports: PullProgress[] = [];
    await pullModel(`hf:${repo}:Q4_K_M`, { ...options, onProgress: (progress) => reports.push(progress) });
    expect(reports[0]).toMatchObject({ label: "tiny-Q4_K_M.gguf", bytes: 0, totalBytes: q4.length, source: `hub ${repo}` });
    expect(reports.at(-1)).toMatchObject({ bytes: q4.length });
    expect(reports.map(({ bytes }) => bytes)).toEqual(reports.map(({ bytes }) => bytes).sort((x, y) => x - y));
  });

  it("is looked for anew by pull when the branch has moved", async () => {
    const { hub, options } = await setUp();
    await resolveModel(`hf:${repo}:Q8_0`, options);
    const renewed = writeGguf(tinyModel("llama", { "general.name": { string: "renewed" } }));
    Object.assign(hub, { commit: "f".repeat(40) });
    hub.files.set("tiny-Q8_0.gguf", renewed);
    expect((await resolveModel(`hf:${repo}:Q8_0`, options)).name).toBe("eight");
    expect((await pullModel(`hf:${repo}:Q8_0`, options)).name).toBe("renewed");
    expect((await resolveModel(`hf:${repo}:Q8_0`, options)).name).toBe("renewed");
  });

  it("is served from the cache when the hub cannot be reached", async () => {
    const { hub, options } = await setUp();
    await resolveModel(`hf:${repo}:Q8_0`, options);
    hub.status = 503;
    // which file the reference means cannot be asked: the only one in the cache is taken
    expect((await resolveModel(`hf:${repo}`, options)).id).toBe("tiny-Q8_0");
  });
});

describe("access", () => {
  it("sends the token to the hub and never to its storage", async () => {
    const { hub, options } = await setUp({ HF_TOKEN: "custom-proxy-token" });
    await pullModel(`hf:${repo}:Q8_0`, options);
    for (const { onStorage, authorization } of hub.requests)
      expect(authorization).toBe(onStorage ? null : "Bearer custom-proxy-token");
    expect(hub.requests.some(({ onStorage }) => onStorage)).toBe(true);
  });

  it("uses the token file of a login", async () => {
    const { hub, options, home } = await setUp();
    await writeFile(join(home, "token"), "hf_fromfile\n");
    await pullModel(`hf:${repo}:Q8_0`, options);
    expect(hub.requests[0]?.authorization).toBe("Bearer hf_fromfile");
  });

  it.each<[number, Record<string, string>, RegExp]>([
    [401, {}, /set HF_TOKEN/],
    [403, { HF_TOKEN: "hf_x" }, /the token in use has no access/],
    [429, {}, /slow down/],
    [500, {}, /status 500/],
  ])("explains status %i", async (status, env, message) => {
    const { hub, options } = await setUp(env);
    hub.status = status;
    const error = await codedErrorOf(() => resolveModel(`hf:${repo}:Q8_0`, options));
    expect(error.code).toBe("model_download_failed");
    expect(error.message).toMatch(message);
  });

  it("explains a missing repository, a missing revision and a dead address", async () => {
    const { options } = await setUp();
    expect((await codedErrorOf(() => resolveModel("hf:owner/other", options))).message).toMatch(/no such repository/);
    expect((await codedErrorOf(() => resolveModel(`hf:${repo}@v9`, options))).message).toMatch(/has no revision "v9"/);
    const dead = { ...options, env: { ...options.env, HF_ENDPOINT: "http://127.0.0.1:1" } };
    expect((await codedErrorOf(() => resolveModel(`hf:${repo}@dev`, dead))).message).toMatch(
      /fetch failed \(.*(bad port|ECONNREFUSED)/,
    );
    const wrong = { ...options, env: { HF_ENDPOINT: "hub.local" } };
    expect((await codedErrorOf(() => resolveModel(`hf:${repo}`, wrong))).code).toBe("invalid_configuration");
  });

  it("does not see files whose paths lead out of the repository", async () => {
    const { hub, options } = await setUp();
    hub.files.clear();
    for (const path of ["../evil.gguf", "/evil.gguf", "a/../../evil.gguf", "C:/evil.gguf", "a\\evil.gguf"])
      hub.files.set(path, q8);
    expect((await codedErrorOf(() => resolveModel(`hf:${repo}`, options))).message).toMatch(/holds no .gguf model/);
  });

  it("says what is missing when offline", async () => {
    const { options } = await setUp({ HF_HUB_OFFLINE: "yes" });
    const error = await codedErrorOf(() => resolveModel(`hf:${repo}:Q8_0`, options));
    expect(error.message).toMatch(/HF_HUB_OFFLINE is set and .* does not hold owner\/tiny-GGUF Q8_0/);
  });
});

describe("a download that goes wrong", () => {
  const blob = (repoFolder: string): string => join(repoFolder, "blobs", sha256(q4));

  it("goes on where the connection broke", async () => {
    const { hub, options, repoFolder } = await setUp();
    let cuts = 0;
    hub.interceptContent = (_, response, content) => {
      if (cuts++ > 0) return false;
      response.writeHead(200, { "content-length": content.length, etag: `"${sha256(q4)}"` });
      response.write(content.subarray(0, 1_500_000), () => response.destroy());
      return true;
    };
    await pullModel(`hf:${repo}:Q4_K_M`, options);
    const resumed = hub.requests.filter(({ range }) => range !== null && range !== "bytes=0-0").at(-1);
    expect(Number(/bytes=(\d+)-/.exec(resumed?.range ?? "")?.[1])).toBeGreaterThan(0);
    expect(sha256(await readFile(blob(repoFolder)))).toBe(sha256(q4));
    expect(await readdir(join(repoFolder, "blobs"))).toEqual([sha256(q4)]);
  });

  it("never becomes a model, and keeps what arrived for the next run", async () => {
    const { hub, options, repoFolder } = await setUp();
    const controller = new AbortController();
    hub.interceptContent = (_, response, content) => {
      response.writeHead(200, { "content-length": content.length, etag: `"${sha256(q4)}"` });
      response.write(content.subarray(0, 1_000_000));
      return true;
    };
    const stop = (progress: PullProgress): void => {
      if (progress.bytes > 0) controller.abort(new Error("stopped by the user"));
    };
    const stopped = pullModel(`hf:${repo}:Q4_K_M`, {
      ...options,
      signal: controller.signal,
      onProgress: stop,
      clock: everLater(),
    });
    await expect(stopped).rejects.toThrow("stopped by the user");
    expect(existsSync(blob(repoFolder))).toBe(false);
    expect(existsSync(join(repoFolder, "snapshots"))).toBe(false);
    const kept = (await lstat(`${blob(repoFolder)}.incomplete`)).size;
    expect(kept).toBeGreaterThan(0);
    hub.interceptContent = () => false;
    await pullModel(`hf:${repo}:Q4_K_M`, options);
    expect(hub.requests.at(-1)?.range).toBe(`bytes=${kept}-${q4.length - 1}`);
  });

  it.each<[string, (content: Buffer) => Buffer]>([
    ["wrong content", (content) => Buffer.alloc(content.length, 1)],
    ["too much content", (content) => Buffer.concat([content, Buffer.alloc(10)])],
  ])("refuses %s and keeps nothing of it", async (_, forge) => {
    const { hub, options, repoFolder } = await setUp();
    hub.interceptContent = (__, response, content) => {
      response.writeHead(200, { etag: `"${sha256(q4)}"` }).end(forge(content));
      return true;
    };
    const error = await codedErrorOf(() => pullModel(`hf:${repo}:Q4_K_M`, options));
    expect(error.code).toBe("model_checksum_mismatch");
    expect(await readdir(join(repoFolder, "blobs"))).toEqual([]);
  });

  it("finds out that a partial file is not of this content", async () => {
    const { options, repoFolder } = await setUp();
    await mkdir(join(repoFolder, "blobs"), { recursive: true });
    await writeFile(`${blob(repoFolder)}.incomplete`, Buffer.alloc(1000, 1));
    expect((await codedErrorOf(() => pullModel(`hf:${repo}:Q4_K_M`, options))).code).toBe("model_checksum_mismatch");
    await pullModel(`hf:${repo}:Q4_K_M`, options);
  });

  it("loads once for two pulls at the same time", async () => {
    const { hub, options } = await setUp();
    const reports: string[] = [];
    const both = await Promise.all([
      pullModel(`hf:${repo}:Q4_K_M`, { ...options, onProgress: ({ source }) => reports.push(source) }),
      pullModel(`hf:${repo}:Q4_K_M`, { ...options, onProgress: ({ source }) => reports.push(source) }),
    ]);
    expect(both[0]).toEqual(both[1]);
    expect(hub.requests.filter(({ path, range }) => path.startsWith("/storage/") && range === null)).toHaveLength(1);
    expect(reports).toContain("another process loads it");
  });
});

describe("the hub cache in the list", () => {
  it("shows references that resolve to the same file, and removes what is named", async () => {
    const { options, repoFolder } = await setUp();
    const q8Model = await pullModel(`hf:${repo}:Q8_0`, options);
    const f16Model = await pullModel(`hf:${repo}:F16`, options);
    const listed = await listModels(options);
    expect(listed.map(({ reference }) => reference).sort()).toEqual([`hf:${repo}:F16`, `hf:${repo}:Q8_0`]);
    for (const model of listed) expect((await resolveModel(model.reference, options)).path).toBe(model.path);
    expect(listed.find(({ path }) => path === f16Model.path)).toMatchObject({ bytes: 2 * shard(1).length, isWhole: true });

    const removed = await removeModel(`hf:${repo}:F16`, options);
    expect(removed).toMatchObject({ freedBytes: 2 * shard(1).length });
    expect(existsSync(q8Model.path)).toBe(true);
    expect((await listModels(options)).map(({ path }) => path)).toEqual([q8Model.path]);

    await removeModel(`hf:${repo}:Q8_0`, options);
    expect(existsSync(repoFolder)).toBe(false);
    expect((await codedErrorOf(() => removeModel(`hf:${repo}:Q8_0`, options))).code).toBe("model_file_missing");
  });
});

/** A clock on which every look is a second later, so that every byte count is reported. */
function everLater() {
  let nowMs = 0;
  return { monotonicMs: () => (nowMs += 1000), wallMs: () => Date.now(), startTimer: () => () => {} };
}
