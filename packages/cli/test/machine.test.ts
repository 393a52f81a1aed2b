import { join } from "node:path";
import { expect, test } from "vitest";
import { chooseGpuLibrary, type GpuMachine } from "../src/machine/gpu-library.ts";
import { countLinuxCores, foreignLoad, physicalCoreCount } from "../src/machine/physical-cores.ts";

const processor = (package_: number, core: number) =>
  `processor : 0\nphysical id\t: ${package_}\ncore id\t\t: ${core}\nflags : x\n`;

test("hyper-threads of one core count once, equal core ids of two packages twice", () => {
  expect(countLinuxCores([processor(0, 0), processor(0, 0), processor(0, 1), processor(0, 1)].join("\n"))).toBe(2);
  expect(countLinuxCores([processor(0, 0), processor(1, 0)].join("\n"))).toBe(2);
});

test("a system that does not list cores counts nothing", () => {
  expect(countLinuxCores("processor : 0\nBogoMIPS : 100\n\nprocessor : 1\n")).toBeNull();
  expect(physicalCoreCount()).toBeGreaterThanOrEqual(1);
});

test("what others keep busy leaves our own time out", () => {
  const before = { busyMs: 1000, totalMs: 10_000, ownMs: 100 };
  const after = { busyMs: 1500, totalMs: 11_000, ownMs: 300 };
  expect(foreignLoad(before, after, 4)).toBeCloseTo(1.2);
  expect(foreignLoad(before, before, 4)).toBe(0);
});

const wanted = { gpu: "auto", gpuLayers: null, libraryDirectory: null, allowUnverifiedLibrary: false } as const;
const nvidiaDriver = "/dev/nvidiactl";

/** A machine on which the named files and fetched packages exist. */
function machineWith(
  platform: string,
  files: readonly string[],
  packages: readonly string[] = [],
): GpuMachine & { fetch(name: string): Promise<void> } {
  const fetched = new Set(packages);
  const isFetched = (path: string) =>
    [...fetched].some((name) => path.includes(name.replace("/", "+")) && path.endsWith("package.json"));
  return {
    platform,
    arch: "x64",
    cacheDir: "/cache",
    exists: (path) => files.includes(path) || isFetched(path),
    fetch: (name) => Promise.resolve(void fetched.add(name)),
  };
}

test("a CUDA build that was asked for is fetched once and found in the cache folder", async () => {
  const machine = machineWith("linux", []);
  const names: string[] = [];
  const fetch = (name: string): Promise<void> => {
    names.push(name);
    return machine.fetch(name);
  };
  const first = await chooseGpuLibrary({ ...wanted, gpu: "cuda" }, machine, fetch);
  const second = await chooseGpuLibrary({ ...wanted, gpu: "cuda" }, machine, fetch);
  expect(names).toEqual(["@node-llama-cpp/linux-x64-cuda"]);
  expect(second).toEqual(first);
  expect(first.usesDeviceMemory).toBe(true);
  expect(first.library.libraryDirectory).toMatch(/@node-llama-cpp\+linux-x64-cuda@[\d.]+.bins.linux-x64-cuda$/);
});

test("auto fetches nothing: it uses what is there, and says what could be", async () => {
  const never = (): Promise<void> => expect.fail("auto fetched a package");
  const withDriver = await chooseGpuLibrary(wanted, machineWith("linux", [nvidiaDriver]), never);
  expect([withDriver.usesDeviceMemory, withDriver.hint]).toEqual([false, expect.stringContaining("--gpu cuda")]);
  const withBoth = await chooseGpuLibrary(
    wanted,
    machineWith("linux", [nvidiaDriver], ["@node-llama-cpp/linux-x64-cuda"]),
    never,
  );
  expect([withBoth.usesDeviceMemory, withBoth.hint, withBoth.library.gpu]).toEqual([true, null, "cuda"]);
  const withoutDriver = await chooseGpuLibrary(wanted, machineWith("linux", [], ["@node-llama-cpp/linux-x64-cuda"]), never);
  expect([withoutDriver.usesDeviceMemory, withoutDriver.library.gpu]).toEqual([false, "auto"]);
});

test("a library of one's own and a platform without GPU builds need no package", async () => {
  const own = await chooseGpuLibrary({ ...wanted, libraryDirectory: "/lib" }, machineWith("linux", [nvidiaDriver]));
  expect(own.library).toEqual({ gpu: "auto", libraryDirectory: join("/lib"), allowUnverified: false });
  expect((await chooseGpuLibrary({ ...wanted, gpu: "none" }, machineWith("linux", [nvidiaDriver]))).library.gpu).toBe("none");
  expect((await chooseGpuLibrary(wanted, machineWith("darwin", []))).library).toEqual({ gpu: "auto", allowUnverified: false });
});
