/** ABI check 2: the structs declared for koffi lie in memory as the C compiler lays out those of the release headers. */

import { CodedError } from "@kvasir/kit";
import type { TypeObject } from "koffi";
import layout from "../abi/layout.json" with { type: "json" };
import { libraryRelease } from "./library-location.ts";
import { constants, structTypes } from "./structs.ts";

/** What `abi/abi.c` prints. A field is [offset, size] in bytes. */
export interface AbiLayout {
  readonly pointerSize: number;
  readonly structs: Readonly<
    Record<string, { readonly size: number; readonly fields: Readonly<Record<string, readonly number[]>> }>
  >;
  readonly constants: Readonly<Record<string, number>>;
}

export const expectedLayout: AbiLayout = layout;

/** Structs of which only the head is declared here: they are never passed by value, so their size does not matter. */
const headOnly: ReadonlySet<string> = new Set(["ggml_tensor"]);

/**
 * @throws CodedError library_mismatch naming the struct, the field and both places
 */
export function checkLayout(
  types: Readonly<Record<string, TypeObject>> = structTypes,
  values: Readonly<Record<string, number>> = constants,
  expected: AbiLayout = expectedLayout,
): void {
  for (const [name, type] of Object.entries(types)) checkStruct(name, type, expected);
  for (const [name, value] of Object.entries(values)) {
    if (expected.constants[name] !== value) throw mismatch(`${name} is ${value}`, `${expected.constants[name]}`);
  }
}

function checkStruct(name: string, type: TypeObject, expected: AbiLayout): void {
  const wanted = expected.structs[name];
  if (wanted === undefined) throw mismatch(`the struct ${name} is declared`, "no such struct");
  const members = type.members ?? {};
  for (const [field, [offset, size]] of Object.entries(wanted.fields)) {
    const member = members[field];
    if (member === undefined) throw mismatch(`${name} has no field ${field}`, `one at byte ${offset}`);
    if (member.offset !== offset) throw mismatch(`${name}.${field} lies at byte ${member.offset}`, `byte ${offset}`);
    if (member.type.size !== size) throw mismatch(`${name}.${field} has ${member.type.size} bytes`, `${size} bytes`);
  }
  const extra = Object.keys(members).find((field) => wanted.fields[field] === undefined);
  if (extra !== undefined) throw mismatch(`${name} has a field ${extra}`, "none of that name");
  if (!headOnly.has(name) && type.size !== wanted.size)
    throw mismatch(`${name} has ${type.size} bytes`, `${wanted.size} bytes`);
}

function mismatch(found: string, expected: string): CodedError {
  return new CodedError(
    "library_mismatch",
    `${found} in this program's declarations, but the headers of llama.cpp ${libraryRelease} say ${expected}. ` +
      "The interface would corrupt memory, so nothing is loaded; this platform or build is not supported.",
  );
}
