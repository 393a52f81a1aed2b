/**
 * libllama's own export and import of a sequence, taken apart: the library talks to two small C++ interfaces (a writer and a
 * reader), and this file stands in for them with objects whose virtual functions are JavaScript callbacks. The export then
 * names the tensors and rows without copying them, and the import asks for them one by one: single pages can be copied, with
 * no buffer for the whole sequence.
 *
 *   object   [address of the table]
 *   table    [destructor][deleting destructor][write | read][write_tensor | read_tensor][n_bytes]      Itanium C++ ABI
 *
 * The names are mangled as GCC and Clang do it. A library built by MSVC lacks them: `stateStreamOf` gives null there.
 */

import { invariant } from "@kvasir/kit";
import koffi, { type TypeObject } from "koffi";
import { NativeMemory } from "./native-memory.ts";
import type { Address } from "./structs.ts";

/** What the export says, in order. */
export type StatePart =
  | { readonly kind: "bytes"; readonly bytes: Uint8Array }
  | { readonly kind: "tensor"; readonly tensor: Address; readonly offset: number; readonly size: number };

/** Answers the import, in order. */
export interface StateSource {
  /** Fills `target` with the next bytes that are not rows. */
  bytes(target: Uint8Array): void;
  /** Fills rows [offset, offset + size) of a tensor. */
  tensor(tensor: Address, offset: number, size: number): void;
}

export const stateStreamSymbols = {
  write: "_ZN13llama_context20state_seq_write_dataER16llama_io_write_iij",
  read: "_ZN13llama_context19state_seq_read_dataER15llama_io_read_iij",
} as const;

type SequenceCall = (context: Address, stream: Address, sequence: number, flags: number) => number | bigint;

const { size_t, int32, uint32 } = koffi.types;
const address = koffi.pointer(koffi.types.void);
const destructorType = koffi.pointer(koffi.proto("void kvasir_io_destructor(void *self)"));
const bytesType = koffi.pointer(koffi.proto("void kvasir_io_bytes(void *self, void *memory, size_t size)"));
const tensorType = koffi.pointer(koffi.proto("void kvasir_io_tensor(void *self, void *tensor, size_t offset, size_t size)"));
const countType = koffi.pointer(koffi.proto("size_t kvasir_io_count(void *self)"));

interface Handlers {
  bytes(memory: Address, size: number): void;
  tensor(tensor: Address, offset: number, size: number): void;
}

/** One C++ object. What a handler throws is kept and thrown after the call: no exception may cross the C++ frames. */
class StreamObject {
  handlers: Handlers | null = null;
  readonly #memory = new NativeMemory(64);
  readonly #callbacks: Address[];
  #bytes = 0;
  #failure: unknown = null;

  constructor() {
    const destroy = koffi.register(() => undefined, destructorType);
    this.#callbacks = [
      destroy,
      koffi.register(
        (_self: Address, memory: Address, size: number | bigint) =>
          this.#guard(size, (handlers, count) => handlers.bytes(memory, count)),
        bytesType,
      ),
      koffi.register(
        (_self: Address, tensor: Address, offset: number | bigint, size: number | bigint) =>
          this.#guard(size, (handlers, count) => handlers.tensor(tensor, Number(offset), count)),
        tensorType,
      ),
      koffi.register(() => this.#bytes, countType),
    ];
    const [destructor, bytes, tensor, count] = this.#callbacks as [Address, Address, Address, Address];
    const words = new BigUint64Array(this.#memory.buffer);
    words.set([this.#memory.address + 8n, destructor, destructor, bytes, tensor, count]);
  }

  /** Runs a call with these handlers and returns the bytes that went through. */
  run(call: (stream: Address) => void, handlers: Handlers): number {
    this.#bytes = 0;
    this.#failure = null;
    this.handlers = handlers;
    call(this.#memory.address);
    this.handlers = null;
    if (this.#failure !== null) throw this.#failure;
    return this.#bytes;
  }

  free(): void {
    for (const callback of this.#callbacks) koffi.unregister(callback);
    this.#memory.free();
  }

  #guard(size: number | bigint, act: (handlers: Handlers, size: number) => void): void {
    const count = Number(size);
    this.#bytes += count;
    if (this.#failure !== null) return;
    try {
      invariant(this.handlers, "the library called a stream outside of a call");
      act(this.handlers, count);
    } catch (error) {
      this.#failure = error;
    }
  }
}

/** Views of C memory by address: the library passes the same few stack addresses again and again. */
class ViewCache {
  readonly #views = new Map<string, Uint8Array>();

  at(memory: Address, size: number): Uint8Array {
    const key = `${memory}:${size}`;
    let view = this.#views.get(key);
    if (view === undefined) {
      view = new Uint8Array(koffi.view(memory, size));
      this.#views.set(key, view);
    }
    return view;
  }
}

export class StateStream {
  readonly #write: SequenceCall;
  readonly #read: SequenceCall;
  readonly #object = new StreamObject();

  constructor(write: SequenceCall, read: SequenceCall) {
    this.#write = write;
    this.#read = read;
  }

  /** What an export of the sequence would say. Copies nothing but the words between the rows. */
  describe(context: Address, sequence: number): StatePart[] {
    const parts: StatePart[] = [];
    const views = new ViewCache();
    this.#object.run((stream) => void this.#write(context, stream, sequence, 0), {
      bytes: (memory, size) => parts.push({ kind: "bytes", bytes: views.at(memory, size).slice() }),
      tensor: (tensor, offset, size) => parts.push({ kind: "tensor", tensor, offset, size }),
    });
    return parts;
  }

  /** Replaces the sequence by what `source` answers. The answers must be consistent: the library throws on others. */
  replace(context: Address, sequence: number, source: StateSource): void {
    const views = new ViewCache();
    this.#object.run((stream) => void this.#read(context, stream, sequence, 0), {
      bytes: (memory, size) => source.bytes(views.at(memory, size)),
      tensor: (tensor, offset, size) => source.tensor(tensor, offset, size),
    });
  }

  free(): void {
    this.#object.free();
  }
}

/** Where symbols are looked up. */
export interface FunctionSource {
  func(name: string, result: TypeObject, args: TypeObject[]): unknown;
}

/** The stream of this library, or null when it does not have these functions. */
export function stateStreamOf(library: FunctionSource): StateStream | null {
  try {
    const bind = (name: string) => library.func(name, size_t, [address, address, int32, uint32]) as SequenceCall;
    return new StateStream(bind(stateStreamSymbols.write), bind(stateStreamSymbols.read));
  } catch {
    return null; // koffi's error for a symbol that is not there
  }
}
