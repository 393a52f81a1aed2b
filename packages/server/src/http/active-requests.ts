/** The requests that are being answered: who closes the server waits for them, and cuts them when the time is up. */

export class ActiveRequests {
  readonly #active = new Set<AbortController>();
  #idleListeners: Array<() => void> = [];

  get count(): number {
    return this.#active.size;
  }

  /** @returns its signal, and what to call when the answer is over */
  begin(): { readonly controller: AbortController; readonly end: () => void } {
    const controller = new AbortController();
    this.#active.add(controller);
    return {
      controller,
      end: () => {
        this.#active.delete(controller);
        if (this.#active.size > 0) return;
        for (const listener of this.#idleListeners.splice(0)) listener();
      },
    };
  }

  abortAll(reason: unknown): void {
    for (const controller of this.#active) controller.abort(reason);
  }

  /** Resolves when nothing is being answered. */
  idle(): Promise<void> {
    if (this.#active.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#idleListeners.push(resolve));
  }
}
