/**
 * Stops a running decode without calling JavaScript from the compute thread and without a compiler.
 *
 * libllama asks `bool callback(void *data)` once per graph node. A JavaScript callback would cost 45 % of a decode step, so the
 * callback is a function of ggml itself that fits the signature exactly: `bool ggml_is_empty(const struct ggml_tensor *)`,
 * true when a dimension of the tensor is 0. `data` is a pretended tensor whose first dimension is the flag: 1 goes on, 0 stops.
 * It reads nothing but the four dimensions (`ne`), whose place the layout check knows, and the function is called once with
 * either value before it is used.
 *
 * GPU kernels do not ask: there a decode ends at the end of its chunk.
 */

import { CodedError, invariant } from "@kvasir/kit";
import type { LibraryHandle } from "koffi";
import { expectedLayout } from "./abi-layout.ts";
import type { NativeFunctions } from "./native-functions.ts";
import { NativeMemory } from "./native-memory.ts";
import type { Address } from "./structs.ts";

export class AbortFlag {
  readonly #tensor: NativeMemory;
  readonly #dimensions: BigInt64Array;
  /** Address of the C function to register as the callback, with `data` as its data. */
  readonly callback: Address;

  /** @param callback address of `ggml_is_empty` */
  constructor(native: NativeFunctions, callback: Address) {
    const layout = expectedLayout.structs["ggml_tensor"];
    const [dimensionsOffset] = layout?.fields["ne"] ?? [];
    invariant(layout !== undefined && dimensionsOffset !== undefined, "the layout table has no ggml_tensor.ne");
    this.callback = callback;
    this.#tensor = new NativeMemory(layout.size);
    this.#dimensions = new BigInt64Array(this.#tensor.buffer, dimensionsOffset, 4).fill(1n);
    this.#checkOnce(native);
  }

  get data(): Address {
    return this.#tensor.address;
  }

  raise(): void {
    this.#dimensions[0] = 0n;
  }

  lower(): void {
    this.#dimensions[0] = 1n;
  }

  /** Only after the context that has the callback is freed. */
  free(): void {
    this.#tensor.free();
  }

  #checkOnce(native: NativeFunctions): void {
    const goesOn = native.ggml_is_empty(this.data);
    this.raise();
    const stops = native.ggml_is_empty(this.data);
    this.lower();
    if (!goesOn && stops) return;
    throw new CodedError(
      "library_mismatch",
      `ggml_is_empty() says ${goesOn} for a full and ${stops} for an empty tensor: ggml_tensor.ne lies elsewhere in this library. Reinstall the pinned packages (npm ci).`,
    );
  }
}

/** The address of a function, for use as a callback inside the library. */
export function functionAddress(library: LibraryHandle, name: string): Address {
  return library.symbol(name) as Address;
}
