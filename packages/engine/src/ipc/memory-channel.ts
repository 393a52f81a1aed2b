/** Both ends of a channel inside one process, for an engine that runs without a child. Clones as a process border would. */

import type { Channel } from "./channel.ts";
import { CloseSignal } from "./close-signal.ts";

class MemoryEnd<Outgoing, Incoming> implements Channel<Outgoing, Incoming> {
  #peer: MemoryEnd<Incoming, Outgoing> | null = null;
  #closed = false;
  readonly #unread: Incoming[] = [];
  readonly #messageListeners = new Set<(message: Incoming) => void>();
  readonly #closeSignal = new CloseSignal();

  connect(peer: MemoryEnd<Incoming, Outgoing>): void {
    this.#peer = peer;
  }

  send(message: Outgoing): boolean {
    if (this.#closed) return false;
    const clone = structuredClone(message);
    queueMicrotask(() => this.#peer?.deliver(clone));
    return true;
  }

  onMessage(listener: (message: Incoming) => void): () => void {
    this.#messageListeners.add(listener);
    for (const message of this.#unread.splice(0)) listener(message);
    return () => this.#messageListeners.delete(listener);
  }

  onClose(listener: () => void): () => void {
    return this.#closeSignal.subscribe(listener);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    // Behind the messages that are on their way.
    queueMicrotask(() => this.#closeSignal.announce());
    this.#peer?.close();
  }

  deliver(message: Incoming): void {
    if (this.#messageListeners.size === 0) this.#unread.push(message);
    // A listener that one of these adds gets the next message first.
    const listeners = Array.from(this.#messageListeners);
    for (const listener of listeners) listener(message);
  }
}

/** Two connected ends. Messages arrive in order, never inside `send`. */
export function memoryChannelPair<Left, Right>(): [left: Channel<Left, Right>, right: Channel<Right, Left>] {
  const left = new MemoryEnd<Left, Right>();
  const right = new MemoryEnd<Right, Left>();
  left.connect(right);
  right.connect(left);
  return [left, right];
}
