import { describe, expect, test } from "vitest";
import { TokenHistory } from "../src/index.ts";

describe("a token history", () => {
  test("keeps prompt and output in order while it grows", () => {
    const prompt = Int32Array.from({ length: 300 }, (_, index) => index);
    const history = new TokenHistory(prompt);
    for (let token = 300; token < 3000; token++) history.append(token);
    expect(history).toMatchObject({ length: 3000, promptLength: 300, outputLength: 2700 });
    expect([...history.view()]).toEqual(Array.from({ length: 3000 }, (_, index) => index));
    expect([...history.view(299, 302)]).toEqual([299, 300, 301]);
    expect(history.at(2999)).toBe(2999);
  });

  test("does not share the prompt's memory", () => {
    const prompt = Int32Array.of(1, 2);
    const history = new TokenHistory(prompt);
    prompt[0] = 9;
    expect(history.at(0)).toBe(1);
  });

  test("refuses to read what is not there", () => {
    const history = new TokenHistory(Int32Array.of(1));
    expect(() => history.at(1)).toThrow("token 1 is outside a history of 1");
    expect(() => history.at(-1)).toThrow("outside");
    expect(() => history.view(0, 2)).toThrow("outside");
  });
});
