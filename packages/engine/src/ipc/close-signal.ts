/** Tells that a channel has closed: once, to everybody who asked before, and soon to everybody who asks later. */

export class CloseSignal {
  readonly #listeners = new Set<() => void>();
  #announced = false;

  announce(): void {
    if (this.#announced) return;
    this.#announced = true;
    const listeners = [...this.#listeners];
    this.#listeners.clear();
    for (const listener of listeners) listener();
  }

  /** Returns the remover of `listener`. */
  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    if (this.#announced) {
      queueMicrotask(() => {
        if (this.#listeners.delete(listener)) listener();
      });
    }
    return () => this.#listeners.delete(listener);
  }
}
