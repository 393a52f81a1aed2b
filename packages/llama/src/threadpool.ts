/**
 * ggml's compute threads. Without a pool of ours the prebuilt library starts and ends its threads for every graph.
 *
 * Between two graphs the threads sleep at once (`poll` 0): polling costs a core that the server and the event loop need, and
 * gains nothing that could be measured. Inside a graph they always spin at barriers.
 */

import { CodedError } from "@kvasir/kit";
import koffi from "koffi";
import type { LlamaLibrary } from "./library.ts";
import { NativeMemory } from "./native-memory.ts";
import { type Address, threadpoolParamsType } from "./structs.ts";

export class Threadpool {
  readonly address: Address;
  readonly #library: LlamaLibrary;

  /**
   * @param threads the caller's thread included
   * @param poll 0 (sleep between graphs) to 100
   */
  constructor(library: LlamaLibrary, threads: number, poll: number) {
    this.#library = library;
    const params = new NativeMemory(koffi.sizeof(threadpoolParamsType));
    try {
      library.native.ggml_threadpool_params_init(params.address, threads);
      new Uint32Array(params.buffer, koffi.offsetof(threadpoolParamsType, "poll"), 1)[0] = poll;
      const address = library.kernels().newThreadpool(params.address);
      if (address === null)
        throw new CodedError("engine_start_failed", `the ${threads} compute threads could not be started. Use fewer threads.`);
      this.address = address;
    } finally {
      params.free();
    }
  }

  /** Only after every context that it is attached to is freed. */
  free(): void {
    this.#library.kernels().freeThreadpool(this.address);
  }
}
