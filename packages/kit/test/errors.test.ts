import { expect, test } from "vitest";
import {
  assertNever,
  CodedError,
  errorCatalogue,
  fromErrorRecord,
  InvariantError,
  invariant,
  messageOf,
  toErrorRecord,
} from "../src/index.ts";

test("a coded error survives a process border", () => {
  const error = new CodedError("invalid_value", "temperature is -1, the least is 0", { param: "temperature" });
  const copy = fromErrorRecord(structuredClone(toErrorRecord(error)));
  expect(copy).toBeInstanceOf(CodedError);
  expect([copy.code, copy.message, copy.param, copy.kind.status]).toEqual(["invalid_value", error.message, "temperature", 400]);
});

test("anything else that crosses it becomes an internal error with its message", () => {
  expect(toErrorRecord(new TypeError("x is not a function"))).toEqual({
    code: "internal_error",
    message: "x is not a function",
  });
  expect(toErrorRecord("text")).toEqual({ code: "internal_error", message: "text" });
});

test("a cause is kept, an absent one is not invented", () => {
  const cause = new Error("ECONNREFUSED");
  expect(new CodedError("model_download_failed", "no", { cause }).cause).toBe(cause);
  expect("cause" in new CodedError("model_download_failed", "no")).toBe(false);
});

test("an error that asks the client to come back has a status that means it", () => {
  const retried = Object.values(errorCatalogue).filter((kind) => "retryAfterSeconds" in kind);
  expect(retried.length).toBeGreaterThan(0);
  for (const kind of retried) expect([429, 503]).toContain(kind.status);
});

test("a broken invariant carries its message", () => {
  expect(() => invariant(false, "lane 3 is taken twice")).toThrow(new InvariantError("lane 3 is taken twice"));
  expect(() => invariant(1, "never")).not.toThrow();
  expect(() => assertNever("surprise" as never)).toThrow(/surprise/);
});

test("messageOf reads anything that was thrown", () => {
  expect([messageOf(new Error("a")), messageOf("b"), messageOf(3)]).toEqual(["a", "b", "3"]);
});
