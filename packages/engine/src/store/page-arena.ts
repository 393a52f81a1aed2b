/**
 * Host memory for page data: equal slots in slabs, so that memory never fragments and the used figure is exact. Slabs are
 * allocated when needed and dropped when their last slot is freed: memory returns. The budget counts slabs, not just slots.
 */

import { invariant } from "@kvasir/kit";

export interface PageSlot {
  readonly slab: Slab;
  readonly index: number;
  readonly bytes: Uint8Array;
}

interface Slab {
  readonly memory: ArrayBuffer;
  /** Indices of free slots, the next to be taken last. */
  readonly free: number[];
  /** 1 where a slot is taken. */
  readonly taken: Uint8Array;
}

/** Largest slab: big enough to be rare, small enough to return soon. */
const SLAB_BYTES = 16 * 1024 * 1024;

export class PageArena {
  readonly slotBytes: number;
  readonly budgetBytes: number;
  readonly #slotsPerSlab: number;
  readonly #slabs = new Set<Slab>();
  #usedSlots = 0;
  #heldBytes = 0;

  /**
   * @param slotBytes bytes of one page
   * @param budgetBytes most bytes of all slabs together; less than one slot stores nothing
   */
  constructor(slotBytes: number, budgetBytes: number) {
    invariant(slotBytes > 0, `a page of ${slotBytes} bytes`);
    this.slotBytes = slotBytes;
    this.budgetBytes = budgetBytes;
    this.#slotsPerSlab = Math.max(1, Math.floor(Math.min(SLAB_BYTES, budgetBytes) / slotBytes));
  }

  get capacitySlots(): number {
    return Math.floor(this.budgetBytes / this.slotBytes);
  }

  get usedSlots(): number {
    return this.#usedSlots;
  }

  /** Bytes taken from the system, free slots of a slab included. Never above the budget. */
  get heldBytes(): number {
    return this.#heldBytes;
  }

  /** A slot with undefined contents, or null when the budget is spent or the system has no more memory. */
  allocate(): PageSlot | null {
    const slab = this.#fullestWithRoom() ?? this.#addSlab();
    const index = slab?.free.pop();
    if (!slab || index === undefined) return null;
    slab.taken[index] = 1;
    this.#usedSlots++;
    return { slab, index, bytes: new Uint8Array(slab.memory, index * this.slotBytes, this.slotBytes) };
  }

  free({ slab, index }: PageSlot): void {
    invariant(this.#slabs.has(slab) && slab.taken[index] === 1, `slot ${index} was freed twice`);
    slab.taken[index] = 0;
    slab.free.push(index);
    this.#usedSlots--;
    if (slab.free.length < slab.taken.length) return;
    this.#slabs.delete(slab);
    this.#heldBytes -= slab.memory.byteLength;
  }

  checkIntegrity(): void {
    let used = 0;
    let held = 0;
    for (const slab of this.#slabs) {
      const taken = slab.taken.reduce((total, bit) => total + bit, 0);
      invariant(taken + slab.free.length === slab.taken.length, `a slab of ${slab.taken.length} slots has ${taken} taken`);
      used += taken;
      held += slab.memory.byteLength;
    }
    invariant(used === this.#usedSlots, `${this.#usedSlots} slots counted, ${used} taken in the slabs`);
    invariant(held === this.#heldBytes, `${this.#heldBytes} bytes counted, the slabs have ${held}`);
    invariant(held <= this.budgetBytes, `${held} bytes held of a budget of ${this.budgetBytes}`);
  }

  /** The fullest slab is filled first, so that sparse ones empty and return. */
  #fullestWithRoom(): Slab | null {
    let fullest: Slab | null = null;
    for (const slab of this.#slabs) {
      if (slab.free.length > 0 && (!fullest || slab.free.length < fullest.free.length)) fullest = slab;
    }
    return fullest;
  }

  #addSlab(): Slab | null {
    const slots = Math.min(this.#slotsPerSlab, Math.floor((this.budgetBytes - this.#heldBytes) / this.slotBytes));
    if (slots < 1) return null;
    const memory = allocateBuffer(slots * this.slotBytes);
    if (!memory) return null;
    const free = Array.from({ length: slots }, (_, index) => slots - 1 - index);
    const slab = { memory, free, taken: new Uint8Array(slots) };
    this.#slabs.add(slab);
    this.#heldBytes += memory.byteLength;
    return slab;
  }
}

function allocateBuffer(bytes: number): ArrayBuffer | null {
  try {
    return new ArrayBuffer(bytes);
  } catch (cause) {
    if (cause instanceof RangeError) return null;
    throw cause;
  }
}
