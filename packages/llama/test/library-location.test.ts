import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { hostMachine } from "../src/library.ts";
import { libraryRelease, locateLibrary, type Machine } from "../src/library-location.ts";

let root: string;
const directories: Record<string, string> = {};

function installPackage(name: string, files: readonly string[]): void {
  const directory = mkdtempSync(join(root, "package-"));
  for (const file of files) writeFileSync(join(directory, file), "");
  directories[`@node-llama-cpp/${name}`] = directory;
}

beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), "kvasir-libraries-"));
  const linuxFiles = (variant: string) => [
    `libllama${variant}.${libraryRelease}.so`,
    `libggml${variant}.${libraryRelease}.so`,
    "libggml-base.so",
    "libggml-cpu-haswell.so",
    "libllama-common.so",
    "llama-addon.node",
  ];
  installPackage("linux-x64", linuxFiles(""));
  installPackage("linux-arm64", linuxFiles(""));
  installPackage("linux-x64-cuda", linuxFiles(".cuda"));
  installPackage("linux-x64-cuda-ext", []);
  installPackage("linux-x64-vulkan", linuxFiles(".vulkan"));
  installPackage("mac-arm64-metal", [
    `libllama.metal.${libraryRelease}.dylib`,
    `libggml.metal.${libraryRelease}.dylib`,
    "libggml-base.dylib",
  ]);
  installPackage("win-x64", [`llama.${libraryRelease}.dll`, `ggml.${libraryRelease}.dll`, "ggml-base.dll", "llama-common.dll"]);
});

afterAll(() => rmSync(root, { recursive: true }));

function machine(place: string, installed: readonly string[], drivers: readonly string[] = []): Machine {
  const [platform = "", arch = ""] = place.split("-");
  return {
    platform,
    arch,
    packageDirectory: (name) => (installed.includes(name.replace("@node-llama-cpp/", "")) ? (directories[name] ?? null) : null),
    canLoad: (name) => drivers.includes(name),
  };
}

const everything = ["linux-x64", "linux-x64-cuda", "linux-x64-cuda-ext", "linux-x64-vulkan"];

test.each([
  ["linux-x64", ["linux-x64"], [], "linux-x64", "none"],
  ["linux-arm64", ["linux-arm64"], [], "linux-arm64", "none"],
  ["darwin-arm64", ["mac-arm64-metal"], [], "mac-arm64-metal", "metal"],
  ["win32-x64", ["win-x64"], [], "win-x64", "none"],
  ["linux-x64", everything, [], "linux-x64", "none"],
  ["linux-x64", everything, ["libcuda.so.1", "libvulkan.so.1"], "linux-x64-cuda", "cuda"],
  ["linux-x64", everything, ["libvulkan.so.1"], "linux-x64-vulkan", "vulkan"],
])("on %s with %j installed and drivers %j, %s runs", (place, installed, drivers, packageName, gpu) => {
  const location = locateLibrary({}, machine(place, installed, drivers));
  expect(location).toMatchObject({ packageName: `@node-llama-cpp/${packageName}`, gpu });
  expect(location.llama).toMatch(/llama(\.\w+)?\.v0\.5\.0\.(so|dylib|dll)$/);
  expect(location.ggmlBase).toContain("ggml-base");
});

test("a named GPU is taken without asking for its driver, and its older kernels lie beside", () => {
  const location = locateLibrary({ gpu: "cuda" }, machine("linux-x64", everything));
  expect(location.gpu).toBe("cuda");
  expect(location.fallbackDirectory).toBe(join(directories["@node-llama-cpp/linux-x64-cuda-ext"] ?? "", "fallback"));
});

test("no GPU on a Mac is the Metal package", () => {
  expect(locateLibrary({ gpu: "none" }, machine("darwin-arm64", ["mac-arm64-metal"])).gpu).toBe("metal");
});

test.each([
  [
    {},
    machine("linux-x64", []),
    /no package with libllama for linux x64 is installed.*npm install @node-llama-cpp\/linux-x64@/s,
  ],
  [
    { gpu: "cuda" as const },
    machine("linux-x64", ["linux-x64"]),
    /gpu "cuda" is installed.*npm install @node-llama-cpp\/linux-x64-cuda@/s,
  ],
  [{ gpu: "metal" as const }, machine("linux-x64", everything), /no metal package for linux x64/],
  [{}, machine("sunos-x64", []), /no prebuilt libllama for sunos x64/],
  [{ libraryDirectory: "/nonexistent" }, machine("linux-x64", []), /\/nonexistent cannot be read/],
  [{ libraryDirectory: tmpdir() }, machine("linux-x64", []), /holds no ggml-base of release v0\.5\.0/],
])("a library that is not there stops the start with the way out (%#)", (options, place, message) => {
  expect(() => locateLibrary(options, place)).toThrow(
    expect.objectContaining({ code: "library_missing", message: expect.stringMatching(message) }),
  );
});

test("two releases in one directory are refused", () => {
  const directory = mkdtempSync(join(root, "two-"));
  for (const name of ["libggml-base.so", "libggml.v0.5.0.so", "libllama.v0.5.0.so", "libllama.cuda.v0.5.0.so"])
    writeFileSync(join(directory, name), "");
  expect(() => locateLibrary({ libraryDirectory: directory }, machine("linux-x64", []))).toThrow(
    /libllama.+and.+libllama.+exactly one/,
  );
});

test("this machine has a package", () => {
  expect(locateLibrary({}, hostMachine).packageName).toMatch(/^@node-llama-cpp\//);
});
