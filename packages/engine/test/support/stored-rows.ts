/** Rows of a pretended model, for store tests: each row depends on every token before it, as KV rows do. No test framework here. */

import { type Clock, ManualClock } from "@kvasir/kit";
import type { DiskTierOptions } from "../../src/store/disk-tier.ts";
import { PAGE_TOKENS } from "../../src/store/page.ts";
import { PrefixStore } from "../../src/store/prefix-store.ts";
import type { PrefixMatch } from "../../src/store/prefix-tree.ts";
import type { ReadRows, TurnHints } from "../../src/store/sequence-writer.ts";

/** Two tensors: a row of `wide` has two bytes, one of `narrow` one. */
export const layout = { rowBytes: [2, 1], bytesPerToken: 3 };
export const pageBytes = layout.bytesPerToken * PAGE_TOKENS;
/** Bytes of a full page's file. */
export const fileBytes = 64 + 4 * PAGE_TOKENS + pageBytes;

export interface Row {
  readonly wide: number;
  readonly narrow: number;
}

export function rowsOf(tokens: Int32Array): Row[] {
  let state = 17;
  return [...tokens].map((token) => {
    state = (state * 31 + token + 7) % 65_521;
    return { wide: state, narrow: state % 251 };
  });
}

export function readerOf(tokens: Int32Array): ReadRows {
  const rows = rowsOf(tokens);
  return (from, count, target) => {
    for (let i = 0; i < count; i++) {
      const { wide, narrow } = rows[from + i] ?? { wide: 0, narrow: 0 };
      target[i * 2] = wide & 255;
      target[i * 2 + 1] = wide >> 8;
      target[count * 2 + i] = narrow;
    }
  };
}

/** The rows that a lane would get from a match in host memory. */
export function restored(store: PrefixStore, match: PrefixMatch): Row[] {
  return store.pieces(match).flatMap(({ bytes, stride, count }) =>
    Array.from({ length: count }, (_, i) => ({
      wide: (bytes[i * 2] ?? 0) + ((bytes[i * 2 + 1] ?? 0) << 8),
      narrow: bytes[stride * 2 + i] ?? 0,
    })),
  );
}

/** `length` tokens that count up. */
export const sequence = (start: number, length: number): Int32Array => Int32Array.from({ length }, (_, i) => start + i);

export const put = (store: PrefixStore, tokens: Int32Array, namespace = "", hints: TurnHints = {}): number =>
  store.put(namespace, tokens, readerOf(tokens), hints);

export interface StoreSettings {
  readonly hostPages: number;
  readonly clock?: Clock;
  readonly disk?: DiskTierOptions;
}

/** A store whose budgets are counted in full pages. */
export function openStore({ hostPages, clock = new ManualClock(), disk }: StoreSettings): PrefixStore {
  return new PrefixStore({
    layout,
    hostBudgetBytes: hostPages * pageBytes,
    clock,
    recomputeMs: (from, to) => (to - from) * (1 + (from + to) / 2000),
    ...(disk && { disk }),
  });
}

export const diskOf = (folder: string, pages: number, fingerprint = "model-a"): DiskTierOptions => ({
  folder,
  fingerprint,
  budgetBytes: pages * fileBytes,
});
