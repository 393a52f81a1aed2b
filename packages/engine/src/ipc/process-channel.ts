/**
 * The channel between a process and a child that it forked with `serialization: "advanced"`, on either side. The end of the
 * pipe (`disconnect`) is the close, not the child's exit: messages that a dying child had sent still come first.
 */

import type { ChildProcess } from "node:child_process";
import { invariant } from "@kvasir/kit";
import type { Channel } from "./channel.ts";
import { CloseSignal } from "./close-signal.ts";

/** What `ChildProcess` and `process` have in common. */
interface IpcEnd {
  readonly connected: boolean;
  disconnect?(): void;
  on(event: "message", listener: (message: unknown) => void): unknown;
  on(event: "disconnect", listener: () => void): unknown;
  off(event: "message", listener: (message: unknown) => void): unknown;
}

class ProcessChannel<Outgoing extends object, Incoming> implements Channel<Outgoing, Incoming> {
  readonly #end: IpcEnd;
  readonly #write: (message: Outgoing, written: () => void) => void;
  readonly #closeSignal = new CloseSignal();
  /** Messages that the pipe has not taken yet. */
  #unwritten = 0;
  #closing = false;

  constructor(end: IpcEnd, write: (message: Outgoing, written: () => void) => void) {
    this.#end = end;
    this.#write = write;
    end.on("disconnect", () => this.#closeSignal.announce());
    if (!end.connected) this.#closeSignal.announce();
  }

  /** There is no pipe: the child could not be started. */
  giveUp(): void {
    this.#closing = true;
    this.#closeSignal.announce();
  }

  send(message: Outgoing): boolean {
    if (this.#closing || !this.#end.connected) return false;
    this.#unwritten++;
    this.#write(message, () => {
      this.#unwritten--;
      if (this.#closing) this.#disconnectWhenWritten();
    });
    return true;
  }

  onMessage(listener: (message: Incoming) => void): () => void {
    const receive = (message: unknown): void => listener(message as Incoming);
    this.#end.on("message", receive);
    return () => this.#end.off("message", receive);
  }

  onClose(listener: () => void): () => void {
    return this.#closeSignal.subscribe(listener);
  }

  close(): void {
    if (this.#closing) return;
    this.#closing = true;
    this.#disconnectWhenWritten();
  }

  #disconnectWhenWritten(): void {
    if (this.#unwritten === 0 && this.#end.connected) this.#end.disconnect?.();
  }
}

/** The parent's end. A child that cannot be started is a close; a failed write is no event of its own: the close tells that the child is gone. */
export function channelToChild<Outgoing extends object, Incoming>(child: ChildProcess): Channel<Outgoing, Incoming> {
  const channel = new ProcessChannel<Outgoing, Incoming>(child, (message, written) => child.send(message, written));
  child.on("error", () => {
    if (child.pid === undefined) channel.giveUp();
  });
  return channel;
}

/** The child's end: `process` of a forked process. */
export function channelToParent<Outgoing extends object, Incoming>(end: NodeJS.Process): Channel<Outgoing, Incoming> {
  invariant(end.connected, "this process was not forked with an IPC channel");
  return new ProcessChannel(end, (message, written) => end.send?.(message, undefined, undefined, written));
}
