/** The command line of llama-server for a comparison. */

import { freePort, type ServerCommand } from "../server-process.ts";
import { type KernelSettings, kernelFlags } from "./llama-tools.ts";
import type { Peers } from "./peer-build.ts";

export interface LlamaServerSettings extends KernelSettings {
  readonly slots: number;
  /** Context of one slot. */
  readonly slotTokens: number;
  /** `--cache-ram`: most MiB of saved prompts in host memory. */
  readonly hostCacheMib?: number;
  /** `-sps`: how much of a prompt must match a slot for that slot to be chosen. */
  readonly slotSimilarity?: number;
  /** Only model, threads, slots and context are set, the rest is what a user gets who sets nothing. */
  readonly usesDefaults?: boolean;
}

/** Unless `usesDefaults`: split streams, one a slot, as `kvasir` lays its lanes out. */
export async function llamaServerCommand(peers: Peers, settings: LlamaServerSettings): Promise<ServerCommand> {
  const port = await freePort();
  const args = settings.usesDefaults ? ["-m", settings.modelPath, "-t", `${settings.threads}`] : kernelFlags(settings);
  args.push("--host", "127.0.0.1", "--port", `${port}`);
  args.push("-np", `${settings.slots}`, "-c", `${settings.slots * settings.slotTokens}`, "--no-ui");
  if (!settings.usesDefaults) args.push("--no-kv-unified");
  if (settings.hostCacheMib !== undefined) args.push("--cache-ram", `${settings.hostCacheMib}`);
  if (settings.slotSimilarity !== undefined) args.push("-sps", `${settings.slotSimilarity}`);
  return { name: "llama-server", command: peers.pathOf("llama-server"), args, port, readyPath: "/health" };
}
