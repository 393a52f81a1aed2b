import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { supportedFlags } from "../src/kvasir-server.ts";
import { measureInterleaved, valuesOf, warningsOf } from "../src/measurement.ts";
import { providePeers } from "../src/peers/peer-build.ts";
import { cpuSecondsOf, memoryOf, processTree } from "../src/process-usage.ts";
import { freePort, startServer } from "../src/server-process.ts";

const scratch = mkdtempSync(join(tmpdir(), "bench-contenders-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const onLinux = process.platform === "linux";

/** A real process: it serves two routes, and starts a child that outlives a careless parent. */
const serverSource = `
  import { spawn } from "node:child_process";
  import { createServer } from "node:http";
  const child = spawn(process.execPath, ["-e", "process.on('SIGTERM', () => setTimeout(() => process.exit(0), 50)); setInterval(() => {}, 1000)"]);
  process.on("SIGTERM", () => { child.kill(); process.exit(0); });
  createServer((request, response) => response.end(request.url === "/v1/models" ? '{"data":[{"id":"m"}]}' : String(process.env.KVASIR_PORT))).listen(Number(process.argv[2]), "127.0.0.1");
`;

describe("a started server", () => {
  const sourcePath = join(scratch, "server.mjs");
  writeFileSync(sourcePath, serverSource);

  test("is-ready-when-startServer-returns-and-gone-with-its-children-when-closed", async () => {
    const port = await freePort();
    const server = await startServer({
      name: "small",
      command: process.execPath,
      args: [sourcePath, `${port}`],
      port,
      readyPath: "/health",
    });
    expect(server).toMatchObject({ name: "small", model: "m", baseUrl: `http://127.0.0.1:${port}` });
    const members = processTree(server.pid);
    if (onLinux) {
      expect(members.length).toBe(2);
      expect(cpuSecondsOf(server.pid)).toBeGreaterThan(0);
      expect(memoryOf(server.pid)?.proportionalBytes).toBeGreaterThan(1e6);
    }
    await server.close();
    for (const pid of members) expect(() => process.kill(pid, 0)).toThrow(/ESRCH/);
  });

  test("does-not-see-settings-from-the-callers-environment", async () => {
    process.env.KVASIR_PORT = "1";
    const port = await freePort();
    const server = await startServer({
      name: "small",
      command: process.execPath,
      args: [sourcePath, `${port}`],
      port,
      readyPath: "/health",
    });
    delete process.env.KVASIR_PORT;
    expect(await (await fetch(`${server.baseUrl}/health`)).text()).toBe("undefined");
    await server.close();
  });

  test("that-ends-early-is-an-error-with-its-last-words", async () => {
    const port = await freePort();
    const args = ["-e", "console.error('no such model'); process.exitCode = 3"];
    await expect(startServer({ name: "broken", command: process.execPath, args, port, readyPath: "/" })).rejects.toThrow(
      /broken ended with 3[\s\S]*no such model/,
    );
  });

  test("that-cannot-be-started-is-named", async () => {
    const command = join(scratch, "absent");
    await expect(startServer({ name: "absent", command, args: [], port: await freePort(), readyPath: "/" })).rejects.toThrow(
      /absent could not be started: .*ENOENT/,
    );
  });
});

describe("interleaved measurements", () => {
  test("take-turns-and-never-overlap", async () => {
    const log: string[] = [];
    const contender = (name: string) => ({
      name,
      pid: null,
      measure: async (round: number) => {
        log.push(`${name}${round} begins`);
        await new Promise((resolve) => setImmediate(resolve));
        log.push(`${name}${round} ends`);
        return round * 10;
      },
    });
    const found = await measureInterleaved([contender("a"), contender("b")], 2, () => {});
    expect(log).toEqual(["a0", "b0", "b1", "a1"].flatMap((turn) => [`${turn} begins`, `${turn} ends`]));
    expect(valuesOf(found, "b")).toEqual([0, 10]);
  });
});

test("foreign-load-and-waiting-servers-that-spin-become-warnings", () => {
  const quiet = { contender: "kvasir", round: 0, value: 1, wallSeconds: 10, foreignCores: 0.01, idleContenderSeconds: 0.01 };
  expect(warningsOf("decode", [quiet, { ...quiet, foreignCores: null }])).toEqual([]);
  expect(warningsOf("decode", [{ ...quiet, foreignCores: 0.5 }])).toEqual([
    "decode, kvasir, round 1: other processes used 0.50 cores",
  ]);
  expect(warningsOf("decode", [{ ...quiet, idleContenderSeconds: 3 }])).toEqual([
    "decode, kvasir, round 1: a waiting server used 3.00 CPU seconds",
  ]);
});

describe("peers", () => {
  test("in-a-given-folder-must-all-be-there", async () => {
    await expect(providePeers(() => {}, { KVASIR_PEERS_DIR: scratch })).rejects.toThrow(
      /lacks llama-server, llama-bench, llama-batched-bench/,
    );
    for (const tool of ["llama-server", "llama-bench", "llama-batched-bench"]) writeFileSync(join(scratch, tool), "");
    expect((await providePeers(() => {}, { KVASIR_PEERS_DIR: scratch })).pathOf("llama-bench")).toBe(
      join(scratch, "llama-bench"),
    );
  });

  test("need-a-compiler-and-say-so", async () => {
    const path = process.env.PATH;
    process.env.PATH = scratch;
    try {
      await expect(providePeers(() => {}, { KVASIR_CACHE_DIR: scratch })).rejects.toThrow(
        /needs npm, which is not on the PATH.*KVASIR_PEERS_DIR/,
      );
    } finally {
      process.env.PATH = path;
    }
  });
});

test("flags-that-this-version-does-not-know-are-left-out", () => {
  const config = { engine: { kvDtype: "f16", hostCacheMib: 0 }, port: 8484 };
  expect(supportedFlags({ "host-cache-mib": 256, "kv-dtype": "f16", "disk-cache-mib": 1 }, config)).toEqual({
    "host-cache-mib": 256,
    "kv-dtype": "f16",
  });
});

test("a-benchmark-that-is-terminated-takes-its-servers-with-it", async () => {
  const source = `
    import { spawn } from "node:child_process";
    import { own, runCommand } from ${JSON.stringify(fileURLToPath(new URL("../src/owned-children.ts", import.meta.url)))};
    await runCommand(async () => {
      const child = own(spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"]));
      child.once("spawn", () => console.log(child.pid));
      await new Promise((resolve) => child.once("exit", resolve));
    });`;
  const bench = spawn(process.execPath, ["--input-type=module", "-e", source]);
  const [line] = (await once(bench.stdout, "data")) as [Buffer];
  const childPid = Number(line.toString());
  bench.kill("SIGTERM");
  expect(await once(bench, "exit")).toEqual([143, null]);
  while (processTree(childPid).length > 0) await new Promise((resolve) => setImmediate(resolve));
  expect(() => process.kill(childPid, 0)).toThrow(/ESRCH/);
});
