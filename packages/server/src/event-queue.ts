/** A queue between callbacks and one reader. Reading is in order; `shift` waits while there is nothing. */

import { invariant } from "@kvasir/kit";

export class EventQueue<Item> {
  readonly #items: Item[] = [];
  #reader: ((item: Item) => void) | null = null;

  push(item: Item): void {
    const reader = this.#reader;
    this.#reader = null;
    if (reader) reader(item);
    else this.#items.push(item);
  }

  /** One reader at a time. */
  shift(): Promise<Item> {
    invariant(this.#reader === null, "the queue has a reader already");
    const item = this.#items.shift();
    if (item !== undefined) return Promise.resolve(item);
    return new Promise((resolve) => {
      this.#reader = resolve;
    });
  }
}
