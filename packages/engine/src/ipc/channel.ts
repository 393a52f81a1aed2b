/** One end of an ordered, reliable message pipe between two processes. */

export interface Channel<Outgoing, Incoming> {
  /** Sends a structured clone of `message`. False when the other end is gone: the message is lost. */
  send(message: Outgoing): boolean;

  /** Calls `listener` with every message; those that came before the first listener are not lost. Returns its remover. */
  onMessage(listener: (message: Incoming) => void): () => void;

  /** Calls `listener` once when the pipe is closed by either end, after the last message; soon, when it is closed already. */
  onClose(listener: () => void): () => void;

  /** Closes both directions once everything that was sent is on its way. Harmless when closed already. */
  close(): void;
}
