/**
 * Tensor types and file types by number, as ggml of llama.cpp v0.5.0 defines them (`ggml.h`, `llama.h`). Block sizes and bytes
 * were read from the library itself (`ggml_blck_size`, `ggml_type_size`); removed types are absent.
 */

import { invariant } from "@kvasir/kit";

export interface TensorType {
  readonly name: string;
  /** Elements in a block; a row is a whole number of blocks. */
  readonly blockElements: number;
  readonly blockBytes: number;
}

const rows: ReadonlyArray<readonly [id: number, name: string, blockElements: number, blockBytes: number]> = [
  [0, "f32", 1, 4],
  [1, "f16", 1, 2],
  [2, "q4_0", 32, 18],
  [3, "q4_1", 32, 20],
  [6, "q5_0", 32, 22],
  [7, "q5_1", 32, 24],
  [8, "q8_0", 32, 34],
  [9, "q8_1", 32, 36],
  [10, "q2_K", 256, 84],
  [11, "q3_K", 256, 110],
  [12, "q4_K", 256, 144],
  [13, "q5_K", 256, 176],
  [14, "q6_K", 256, 210],
  [15, "q8_K", 256, 292],
  [16, "iq2_xxs", 256, 66],
  [17, "iq2_xs", 256, 74],
  [18, "iq3_xxs", 256, 98],
  [19, "iq1_s", 256, 50],
  [20, "iq4_nl", 32, 18],
  [21, "iq3_s", 256, 110],
  [22, "iq2_s", 256, 82],
  [23, "iq4_xs", 256, 136],
  [24, "i8", 1, 1],
  [25, "i16", 1, 2],
  [26, "i32", 1, 4],
  [27, "i64", 1, 8],
  [28, "f64", 1, 8],
  [29, "iq1_m", 256, 56],
  [30, "bf16", 1, 2],
  [34, "tq1_0", 256, 54],
  [35, "tq2_0", 256, 66],
  [39, "mxfp4", 32, 17],
  [40, "nvfp4", 64, 36],
  [41, "q1_0", 128, 18],
  [42, "q2_0", 64, 18],
];

const tensorTypes: ReadonlyMap<number, TensorType> = new Map(
  rows.map(([id, name, blockElements, blockBytes]) => [id, { name, blockElements, blockBytes }]),
);

export function tensorType(id: number): TensorType | undefined {
  return tensorTypes.get(id);
}

/** `general.file_type`: what most tensors of a file are. */
const fileTypeNames: ReadonlyMap<number, string> = new Map([
  [0, "F32"],
  [1, "F16"],
  [2, "Q4_0"],
  [3, "Q4_1"],
  [7, "Q8_0"],
  [8, "Q5_0"],
  [9, "Q5_1"],
  [10, "Q2_K"],
  [11, "Q3_K_S"],
  [12, "Q3_K_M"],
  [13, "Q3_K_L"],
  [14, "Q4_K_S"],
  [15, "Q4_K_M"],
  [16, "Q5_K_S"],
  [17, "Q5_K_M"],
  [18, "Q6_K"],
  [19, "IQ2_XXS"],
  [20, "IQ2_XS"],
  [21, "Q2_K_S"],
  [22, "IQ3_XS"],
  [23, "IQ3_XXS"],
  [24, "IQ1_S"],
  [25, "IQ4_NL"],
  [26, "IQ3_S"],
  [27, "IQ3_M"],
  [28, "IQ2_S"],
  [29, "IQ2_M"],
  [30, "IQ4_XS"],
  [31, "IQ1_M"],
  [32, "BF16"],
  [36, "TQ1_0"],
  [37, "TQ2_0"],
  [38, "MXFP4_MOE"],
  [39, "NVFP4"],
  [40, "Q1_0"],
  [41, "Q2_0"],
]);

/** Name of a file type, `unknown (N)` for a number that this table lacks. */
export function fileTypeName(id: number): string {
  return fileTypeNames.get(id) ?? `unknown (${id})`;
}

/** Types that libllama takes for the KV cache (`--cache-type-k`, `--cache-type-v`). */
export const kvTypeNames = ["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"] as const;
export type KvType = (typeof kvTypeNames)[number];

const byName: ReadonlyMap<string, TensorType> = new Map([...tensorTypes.values()].map((type) => [type.name, type]));

/** Bytes of `elements` values in one row; a started block counts whole. */
export function rowBytes(type: KvType, elements: number): number {
  const found = byName.get(type);
  invariant(found, `tensor type ${type} is missing in the table`);
  return Math.ceil(elements / found.blockElements) * found.blockBytes;
}
