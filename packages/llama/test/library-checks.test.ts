import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { systemClock } from "@kvasir/kit";
import koffi, { type TypeObject } from "koffi";
import { afterAll, beforeAll, expect, test } from "vitest";
import { checkDefaults, contextDefaults, modelDefaults } from "../src/abi-defaults.ts";
import { checkLayout, expectedLayout } from "../src/abi-layout.ts";
import { checkLibrary } from "../src/check-library.ts";
import { hostMachine, openLibrary } from "../src/library.ts";
import { libraryHashes, verifyLibraryFiles } from "../src/library-hashes.ts";
import { type LibraryLocation, locateLibrary } from "../src/library-location.ts";
import { loadModel } from "../src/model.ts";
import { bindFunctions, hasNextn, nextnSymbols, prototypes, type SymbolSource } from "../src/native-functions.ts";
import { roundTrip } from "../src/round-trip.ts";
import { constants, contextParamsType, structTypes } from "../src/structs.ts";
import { Vocabulary } from "../src/vocabulary.ts";
import { tinyModelPath } from "../../../fixtures/tiny-models.ts";

const mismatch = (message: RegExp) =>
  expect.objectContaining({ code: "library_mismatch", message: expect.stringMatching(message) });
const location = locateLibrary({}, hostMachine);
let copies: LibraryLocation;

beforeAll(() => {
  const directory = mkdtempSync(join(tmpdir(), "kvasir-library-"));
  const copy = (file: string) => {
    const target = join(directory, basename(file));
    copyFileSync(file, target);
    return target;
  };
  copies = {
    ...location,
    directory,
    llama: copy(location.llama),
    ggml: copy(location.ggml),
    ggmlBase: copy(location.ggmlBase),
  };
});

afterAll(() => rmSync(copies.directory, { recursive: true }));

test("the installed library passes every check", async () => {
  const report = await checkLibrary({ roundTripModel: tinyModelPath("tiny-qwen3") });
  expect(report).toMatchObject({ verification: "verified", version: "0.5.0-dev", hasNextn: true, gpuProblem: null });
  expect(report.cpuVariant).toMatch(/^[a-z0-9]+$/);
  expect(report.roundTrip).toMatchObject({ kvBytesPerToken: 2048, recurrentBytesPerLane: 0 });
});

test("a library is opened once, and another directory is not mixed with it", () => {
  expect(openLibrary()).toBe(openLibrary());
  expect(() => openLibrary({ libraryDirectory: copies.directory })).toThrow(
    expect.objectContaining({ code: "invalid_configuration" }),
  );
});

test("a file with one other byte is refused by name and hash", () => {
  const bytes = readFileSync(copies.ggml);
  const changed = join(copies.directory, "changed.so");
  bytes[1000] = (bytes[1000] ?? 0) ^ 1;
  writeFileSync(changed, bytes);
  const known = {
    [location.packageName ?? ""]: {
      ...libraryHashes[location.packageName ?? ""],
      "changed.so": libraryHashes[location.packageName ?? ""]?.[basename(location.ggml)] ?? "",
    },
  };
  expect(() => verifyLibraryFiles({ ...copies, ggml: changed }, true, known)).toThrow(
    mismatch(/changed\.so has SHA-256 [0-9a-f]{64}, expected [0-9a-f]{64}/),
  );
});

test("unknown libraries need the user's word, known files in another directory do not", () => {
  const named = { ...copies, packageName: null };
  expect(verifyLibraryFiles(named, false)).toBe("verified");
  expect(() => verifyLibraryFiles({ ...copies, packageName: "@node-llama-cpp/other" }, false, {})).toThrow(
    mismatch(/other is not in the table/),
  );
  expect(verifyLibraryFiles(named, true, {})).toBe("unverified");
});

test("a missing function is named", () => {
  const libraries = [location.ggmlBase, location.ggml, location.llama]
    .map((file) => koffi.load(file, { global: true }))
    .reverse();
  expect(() => bindFunctions(libraries)).not.toThrow();
  const without = libraries.map((library) => hiding(library, ["llama_decode", "llama_synchronize"]));
  expect(() => bindFunctions(without)).toThrow(mismatch(/lacks the functions llama_synchronize, llama_decode/));
  expect(() => bindFunctions(libraries, { ...prototypes, llama_future: [koffi.types.void, []] })).toThrow(
    mismatch(/lacks the function llama_future/),
  );
});

test("without the C++ functions only MTP is off", () => {
  const libraries = [koffi.load(location.llama, { global: true })];
  expect(hasNextn(libraries)).toBe(true);
  expect(hasNextn(libraries.map((library) => hiding(library, [nextnSymbols[1]])))).toBe(false);
});

test("a declaration that lies elsewhere than the headers say is named", () => {
  const members = Object.entries(contextParamsType.members ?? {});
  const withTypes = (entries: typeof members) =>
    koffi.struct(Object.fromEntries(entries.map(([name, member]) => [name, member.type])));
  const check = (type: TypeObject) => () => checkLayout({ ...structTypes, llama_context_params: type });
  expect(() => checkLayout()).not.toThrow();
  expect(check(withTypes(members.filter(([name]) => name !== "n_rs_seq")))).toThrow(
    mismatch(/llama_context_params has no field n_rs_seq.*byte 16/),
  );
  const swapped = members.map(
    ([name, member]) =>
      [name === "n_ctx" ? "n_batch" : name === "n_batch" ? "n_ctx" : name, member] as (typeof members)[number],
  );
  expect(check(withTypes(swapped))).toThrow(mismatch(/llama_context_params\.n_ctx lies at byte 4.*byte 0/));
  expect(
    check(withTypes([...members, ["extra", { ...members[0]?.[1], name: "extra" } as (typeof members)[number][1]]])),
  ).toThrow(mismatch(/has a field extra/));
  expect(() => checkLayout(structTypes, { ...constants, GGML_TYPE_Q8_0: 9 })).toThrow(mismatch(/GGML_TYPE_Q8_0 is 9.*say 8/));
  expect(() => checkLayout({ unknown_struct: contextParamsType })).toThrow(mismatch(/unknown_struct/));
  expect(Object.keys(expectedLayout.structs).sort()).toEqual(Object.keys(structTypes).sort());
});

test("a default read through a shifted declaration is named", () => {
  const { native } = openLibrary();
  expect(() => checkDefaults("llama_model_default_params", native.llama_model_default_params(), modelDefaults)).not.toThrow();
  // declared with one field less than the library has: everything behind it is read from its neighbour
  const entries = Object.entries(contextParamsType.members ?? {}).filter(([name]) => name !== "n_outputs_max_per_seq");
  const shifted = koffi.struct(Object.fromEntries(entries.map(([name, member]) => [name, member.type])));
  const read = koffi.load(location.llama).func("llama_context_default_params", shifted, []);
  const { n_outputs_max_per_seq: _, ...expected } = contextDefaults;
  expect(() => checkDefaults("llama_context_default_params", read(), expected)).toThrow(
    mismatch(/llama_context_default_params\(\) gives n_threads = 1, but release v0\.5\.0 has 4/),
  );
});

test("logits that are not where they should be are found by the greedy sampler", async () => {
  const model = await loadModel(openLibrary(), { modelPath: tinyModelPath("tiny-qwen3"), vocabOnly: false, gpuLayers: 0 });
  const settings = { threads: 1, threadPoll: 0, keyType: "f16", valueType: "f16", offload: false } as const;
  const { size } = new Vocabulary(model);
  const whole = await roundTrip(model, settings, size, systemClock);
  expect(whole.kvBytesPerToken).toBe(2048);
  // a view of the first ten logits only stands for a view of the wrong place
  await expect(roundTrip(model, settings, 10, systemClock)).rejects.toThrow(mismatch(/greedy sampler picks/));
  model.close();
});

/** The library without some of its symbols. */
function hiding(library: SymbolSource, names: readonly string[]): SymbolSource {
  return {
    func: (name, result, args) => library.func(name, result, args),
    symbol: (name) => {
      if (names.includes(name)) throw new Error(`Cannot find symbol '${name}' in shared library`);
      return library.symbol(name);
    },
  };
}
