/**
 * A process that opens a store, for tests that kill it, lock against it or limit it: `store-child.ts FOLDER MODE`.
 *
 *   fill    stores and spills one session after another until it is killed; prints a line for each spilled page
 *   once    stores one session, tries to spill it, prints whether that worked and the store's tiers, ends
 */

import { systemClock } from "@kvasir/kit";
import { PrefixStore } from "../../src/store/prefix-store.ts";
import { diskOf, layout, put, sequence } from "./stored-rows.ts";

const [folder = "", mode = ""] = process.argv.slice(2);
const store = new PrefixStore({
  layout: mode === "once" ? { rowBytes: [64], bytesPerToken: 64 } : layout,
  hostBudgetBytes: 1e6,
  disk: diskOf(folder, 1000),
  clock: systemClock,
  recomputeMs: (from, to) => to - from,
});
process.stdout.write("open\n");
if (mode === "once") {
  put(store, sequence(0, 200));
  const spilled = await store.spill();
  process.stdout.write(`${JSON.stringify({ spilled, ...store.status().tiers })}\n`);
  await store.close();
} else {
  for (let session = 0; session < 1000; session++) {
    put(store, sequence(1000 * session, 200));
    while (await store.spill()) process.stdout.write("spilled\n");
  }
}
