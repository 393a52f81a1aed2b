import { expect, test } from "vitest";
import { isSecretName, redactArguments, redacted, redactRecord } from "../src/index.ts";

test("secret names in every spelling, and names that only look alike", () => {
  for (const name of ["apiKey", "api-key", "KVASIR_API_KEY", "HF_TOKEN", "hfToken", "token", "client_secret", "password"]) {
    expect([name, isSecretName(name)]).toEqual([name, true]);
  }
  for (const name of ["apiKeyFile", "maxContextTokens", "batch-tokens", "bosToken", "host"]) {
    expect([name, isSecretName(name)]).toEqual([name, false]);
  }
});

test("a command line hides the value in both spellings and nothing else", () => {
  expect(redactArguments(["serve", "--api-key", "abc", "--port", "1", "--api-key=x=y", "--api-key-file", "key.txt"])).toEqual([
    "serve",
    "--api-key",
    redacted,
    "--port",
    "1",
    `--api-key=${redacted}`,
    "--api-key-file",
    "key.txt",
  ]);
});

test("records are hidden at any depth, empty values show that nothing is set", () => {
  const record = { server: { apiKey: "abc", port: 1 }, mirrors: ["https://me:pw@example.org/x"], apiKey: null, password: "" };
  expect(redactRecord(record)).toEqual({
    server: { apiKey: redacted, port: 1 },
    mirrors: [`https://${redacted}@example.org/x`],
    apiKey: null,
    password: "",
  });
  expect(record.server.apiKey).toBe("abc");
});
