/** Memory of the C heap that JavaScript reads and writes through views: for what an asynchronous call reads while it runs. */

import { invariant } from "@kvasir/kit";
import koffi from "koffi";
import type { Address } from "./structs.ts";

export class NativeMemory {
  readonly #address: Address;
  readonly #buffer: ArrayBuffer;
  #freed = false;

  /** @param byteLength 1 to 2^31-1; the bytes start as zero */
  constructor(byteLength: number) {
    this.#address = koffi.alloc(koffi.types.uint8, byteLength);
    this.#buffer = koffi.view(this.#address, byteLength);
  }

  get address(): Address {
    invariant(!this.#freed, "native memory used after it was freed");
    return this.#address;
  }

  /** For views; they must not be touched after `free`. */
  get buffer(): ArrayBuffer {
    invariant(!this.#freed, "native memory used after it was freed");
    return this.#buffer;
  }

  free(): void {
    if (this.#freed) return;
    this.#freed = true;
    koffi.free(this.#address);
  }
}
