/** Kernel speeds of this machine, now: what the physical limit is computed from. Takes about two minutes on two cores. */

import { benchBatchedDecode, benchPrefill, type KernelSettings } from "../peers/llama-tools.ts";
import type { Peers } from "../peers/peer-build.ts";
import { type DecodePoint, fitPrefillCost, type PrefillCost } from "./physical-limit.ts";

export interface Calibration {
  readonly prefillPoints: ReadonlyArray<{ readonly tokens: number; readonly seconds: number }>;
  readonly prefill: PrefillCost;
  readonly decode: readonly DecodePoint[];
}

const PREFILL_LENGTHS = [512, 2048, 6144] as const;
const DEPTHS = [256, 3072] as const;
const DECODE_TOKENS = 48;

export async function calibrate(
  peers: Peers,
  settings: KernelSettings,
  lanes: number,
  report: (line: string) => void,
): Promise<Calibration> {
  const prefillPoints: Array<{ tokens: number; seconds: number }> = [];
  for (const tokens of PREFILL_LENGTHS) {
    const { tokensPerSecond } = await benchPrefill(peers, settings, tokens);
    report(`calibration: prefill ${tokens} at ${tokensPerSecond.toFixed(1)} tok/s`);
    prefillPoints.push({ tokens, seconds: tokens / tokensPerSecond });
  }
  const decode: DecodePoint[] = [];
  for (const batch of new Set([1, 2, lanes])) {
    for (const depth of DEPTHS) {
      const { tokensPerSecond } = await benchBatchedDecode(peers, settings, batch, depth, DECODE_TOKENS);
      report(`calibration: decode ×${batch} at depth ${depth}: ${tokensPerSecond.toFixed(1)} tok/s`);
      decode.push({ batch, depth, stepSeconds: batch / tokensPerSecond });
    }
  }
  return { prefillPoints, prefill: fitPrefillCost(prefillPoints), decode };
}
