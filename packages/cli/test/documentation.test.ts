import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { flagName, optionKeys, options } from "../src/config/options.ts";

const serving = readFileSync(new URL("../../../docs/serving.md", import.meta.url), "utf8");

test("docs/serving.md lists every option with its default, and no other", () => {
  const rows = [...serving.matchAll(/^\| `--([a-z-]+)` \| (\S+) \|/gm)].map(([, flag, value]) => [flag, value]);
  const expected = optionKeys.map((key) => {
    const { defaultValue, isAutomatic } = options[key];
    const isAbsent = defaultValue === null || Array.isArray(defaultValue);
    const shown = isAutomatic ? "`auto`" : isAbsent ? "none" : defaultValue === false ? "off" : `\`${String(defaultValue)}\``;
    return [flagName(key), shown];
  });
  expect(rows).toEqual(expected);
});
