/**
 * How a starting server tells what it does: to a person at its terminal, or to the `kvasir start` that waits for it, over the
 * channel between the two. `start` leaves when it knows how it went; the server stays.
 */

import type { Output } from "../context.ts";

export type StartupMessage =
  | { readonly kind: "progress"; readonly text: string }
  | { readonly kind: "ready"; readonly text: string }
  | { readonly kind: "failed"; readonly text: string };

export interface StartupReport {
  /** Output that downloads show their progress on. */
  readonly progressOutput: Output;
  loading(fraction: number): void;
  ready(block: string): void;
  failed(message: string): void;
}

/** To a person. */
export function terminalReport(stdout: Output, stderr: Output): StartupReport {
  let isLineOpen = false;
  const endLine = (): void => {
    if (isLineOpen) stderr.write("\r\x1b[K");
    isLineOpen = false;
  };
  return {
    progressOutput: stderr,
    loading(fraction) {
      if (stderr.isTTY !== true) return;
      stderr.write(`\r\x1b[Kloading the model: ${Math.floor(fraction * 100)} %`);
      isLineOpen = true;
      if (fraction >= 1) endLine();
    },
    ready(block) {
      endLine();
      stdout.write(block);
    },
    failed(message) {
      endLine();
      stderr.write(`${message}\n`);
    },
  };
}

/** To the log, which is what stdout and stderr of a detached server are, and to whoever waits. */
export function detachedReport(stdout: Output, stderr: Output): StartupReport {
  const tell = (message: StartupMessage): void => {
    if (process.connected) process.send?.(message, undefined, undefined, () => {});
  };
  return {
    progressOutput: {
      isTTY: false,
      write(text) {
        tell({ kind: "progress", text: text.trimEnd() });
        return stderr.write(text);
      },
    },
    loading: (fraction) => tell({ kind: "progress", text: `loading the model: ${Math.floor(fraction * 100)} %` }),
    ready(block) {
      stdout.write(block);
      tell({ kind: "ready", text: block });
    },
    failed(message) {
      stderr.write(`${message}\n`);
      tell({ kind: "failed", text: message });
    },
  };
}
