import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CodedError } from "@kvasir/kit";
import { afterEach, beforeEach, expect, test } from "vitest";
import { flagName, optionKeys, options, variableName } from "../src/config/options.ts";
import { printableConfiguration } from "../src/config/print-configuration.ts";
import { type ConfigurationInput, resolveConfiguration } from "../src/config/resolve-configuration.ts";

let folder = "";
let environment: Record<string, string> = {};
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "kvasir-configuration-"));
  environment = { XDG_CONFIG_HOME: folder };
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const resolve = (flags: ConfigurationInput["flags"] = {}, file?: string) => resolveConfiguration({ flags, environment, file });

function writeConfig(content: unknown, name = "config.json"): string {
  const path = join(folder, name);
  writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
  return path;
}

function problemOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (error instanceof CodedError && error.code === "invalid_configuration") return error.message;
    throw error;
  }
  return expect.fail("the configuration was accepted");
}

test("a flag beats a variable, a variable beats the file, the file beats the default, and the source is remembered", () => {
  environment["KVASIR_PORT"] = "2";
  environment["KVASIR_MAX_CONCURRENCY"] = "2";
  const file = writeConfig({ port: 3, maxConcurrency: 3, batchTokens: 64 });
  const { values, sources } = resolve({ port: "1" }, file);
  expect([values.port, values.maxConcurrency, values.batchTokens, values.itlTargetMs]).toEqual([1, 2, 64, 250]);
  expect([sources.port, sources.maxConcurrency, sources.batchTokens, sources.itlTargetMs]).toEqual([
    "flag",
    "environment",
    "file",
    "default",
  ]);
});

test("the result is frozen", () => {
  const { values } = resolve();
  expect(Object.isFrozen(values)).toBe(true);
});

test("every default satisfies its own rule, and every text form of it means the same", () => {
  const { values } = resolve();
  for (const key of optionKeys) {
    const value = values[key];
    const asText = value === null ? null : Array.isArray(value) ? value.join(",") : String(value);
    if (asText === null) continue;
    const again = resolveConfiguration({ flags: { [key]: asText }, environment });
    expect([key, again.values[key]]).toEqual([key, value]);
  }
});

test("flags, variables and keys follow from one name", () => {
  expect([flagName("requestLogMaxMib"), variableName("requestLogMaxMib")]).toEqual([
    "request-log-max-mib",
    "KVASIR_REQUEST_LOG_MAX_MIB",
  ]);
});

test("auto is the absence of a number in all three places", () => {
  environment["KVASIR_THREADS"] = "auto";
  const { values } = resolve({ maxContextTokens: "auto" }, writeConfig({ topP: "auto", topK: null }));
  expect([values.threads, values.maxContextTokens, values.topP, values.topK]).toEqual([null, null, null, null]);
});

test("lists are comma-separated as text and arrays in a file", () => {
  environment["KVASIR_ALLOWED_HOSTS"] = "a.example, b.example";
  const { values } = resolve({}, writeConfig({ corsOrigins: ["https://c.example"] }));
  expect([values.allowedHosts, values.corsOrigins]).toEqual([["a.example", "b.example"], ["https://c.example"]]);
});

test.each([
  ["port", "-5", "--port is -5; it must be a whole number from 0 to 65535"],
  ["port", "80a", '--port is "80a"; it must be a whole number from 0 to 65535'],
  ["port", "8.5", "--port is 8.5; it must be a whole number from 0 to 65535"],
  ["port", "", '--port is ""; it must be a whole number from 0 to 65535'],
  ["maxConcurrency", "0", "--max-concurrency is 0; it must be a whole number from 1 to 256"],
  ["kvDtype", "f17", '--kv-dtype is "f17"; it must be one of f32, f16'],
  ["topP", "1.5", "--top-p is 1.5; it must be a number from 0 to 1 or auto"],
  ["model", "", '--model is ""; it must not be empty'],
] as const)("--%s %s is refused with the value and the rule", (key, text, problem) => {
  expect(problemOf(() => resolve({ [key]: text }))).toContain(problem);
});

test("a bad value in a variable or a file is named by where it stands", () => {
  environment["KVASIR_PORT"] = "x";
  const file = writeConfig({ maxBodyMib: "32", gpu: "tpu" });
  const problem = problemOf(() => resolve({}, file));
  expect(problem).toContain('KVASIR_PORT is "x"');
  expect(problem).toContain(`"maxBodyMib" in ${file} is "32"; it must be a whole number from 1 to 1024`);
  expect(problem).toContain(`"gpu" in ${file} is "tpu"`);
});

test("unknown keys and variables are refused and the likely one is named", () => {
  expect(problemOf(() => resolve({}, writeConfig({ maxContext: 1, prot: 1 })))).toContain("did you mean port?");
  environment["KVASIR_MAX_BODY"] = "3";
  expect(problemOf(() => resolve())).toContain("KVASIR_MAX_BODY is not an option (did you mean KVASIR_MAX_BODY_MIB?)");
});

test("variables that are no options but ours are left alone", () => {
  environment["KVASIR_CACHE_DIR"] = folder;
  environment["KVASIR_TEST_PYTHON"] = "python";
  expect(() => resolve()).not.toThrow();
});

test("the usual file is read when it is there, a named one must be there, and both must be JSON objects", () => {
  expect(resolve().file).toBeNull();
  expect(problemOf(() => resolve({}, join(folder, "none.json")))).toContain("none.json cannot be read");
  expect(problemOf(() => resolve({}, writeConfig("{ port: 1 }", "bad.json")))).toContain("it must be a JSON object");
  expect(problemOf(() => resolve({}, writeConfig([1], "array.json")))).toContain("holds [1]; it must be a JSON object");
});

test("the printed configuration shows values and sources, and no secret", () => {
  environment["KVASIR_API_KEY"] = "very-secret";
  const printed = printableConfiguration(resolve({ port: "1" }), { modelPath: "m.gguf" });
  const text = JSON.stringify(printed);
  expect(text).not.toContain("very-secret");
  expect(printed).toMatchObject({
    modelPath: "m.gguf",
    settings: {
      port: { value: 1, source: "flag" },
      apiKey: { value: "[redacted]", source: "environment" },
      apiKeyFile: { value: null, source: "default" },
      maxContextTokens: { value: "auto", source: "default" },
    },
  });
  expect(Object.keys(printed["settings"] as object)).toEqual(Object.keys(options));
});

test("a secret that breaks a rule is not shown in the error", () => {
  const problem = problemOf(() => resolve({}, writeConfig({ apiKey: 12345 })));
  expect(problem).toContain("is [redacted]; it must be a text");
  expect(problem).not.toContain("12345");
});
