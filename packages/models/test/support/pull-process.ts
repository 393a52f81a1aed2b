/** Pulls a catalogue entry in a process of its own: `node pull-process.ts JSON`, where JSON has `entry`, `cacheDir` and `env`. */

import { systemClock } from "@kvasir/kit";
import type { CatalogueEntry } from "../../src/catalogue.ts";
import { pullCatalogueModel } from "../../src/catalogue-pull.ts";

const { entry, cacheDir, env } = JSON.parse(process.argv[2] ?? "{}") as {
  entry: CatalogueEntry;
  cacheDir: string;
  env: Record<string, string>;
};
const path = await pullCatalogueModel(entry, { cacheDir, env, clock: systemClock, onProgress: () => {} });
process.stdout.write(path);
