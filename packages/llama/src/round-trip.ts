/**
 * ABI check 4, on the model that will be served: a context with unusual values says the same values back, and four tokens give
 * logits whose largest, found in our view of C memory, is the token that libllama's own greedy sampler picks.
 *
 * The same context tells what the plan needs before the real one is allocated: bytes of KV a token, of recurrent state a lane,
 * and the time of a row. It also reads the weights once, so that the first request does not wait for the disk.
 */

import { Batch } from "@kvasir/engine";
import { type Clock, CodedError, invariant } from "@kvasir/kit";
import koffi from "koffi";
import { BatchMemory } from "./batch-memory.ts";
import { type ContextOptions, createContext, type LlamaContext } from "./context.ts";
import { bytesPerToken, readLaneStateLayout } from "./lane-state-layout.ts";
import type { LlamaModel } from "./model.ts";
import { constants } from "./structs.ts";

export interface RoundTrip {
  /** KV bytes of one token in a lane. */
  readonly kvBytesPerToken: number;
  /** Bytes of recurrent state of one lane, whatever its length. */
  readonly recurrentBytesPerLane: number;
  /** Milliseconds of a decode of one row in a nearly empty lane: the best of three. */
  readonly rowMs: number;
}

/** The part of the context's options that the round trip takes over; sizes are its own. */
export type RoundTripSettings = Pick<ContextOptions, "threads" | "threadPoll" | "keyType" | "valueType" | "offload">;

/** Values that no default has. 700 tokens over 3 lanes become 3 × 256. */
const unusual = { lanes: 3, contextTokens: 700, roundedTokens: 768, laneTokens: 256, batchTokens: 96, microBatchTokens: 64 };
const lane = 1;
const promptTokens = 4;

export async function roundTrip(
  model: LlamaModel,
  settings: RoundTripSettings,
  vocabSize: number,
  clock: Clock,
): Promise<RoundTrip> {
  const context = await createContext(model, {
    ...settings,
    laneCount: unusual.lanes,
    laneTokens: unusual.contextTokens / unusual.lanes,
    batchTokens: unusual.batchTokens,
    microBatchTokens: unusual.microBatchTokens,
    outputRows: unusual.lanes,
  });
  const memory = new BatchMemory(unusual.batchTokens);
  try {
    checkSaidBack(context, settings);
    const batch = new Batch(unusual.batchTokens);
    for (let position = 0; position < promptTokens; position++) {
      batch.push(lane, position, (position + 1) % vocabSize, position === promptTokens - 1);
    }
    decode(context, memory, batch);
    checkGreedy(context, batch.rows - 1, vocabSize);
    const sizes = measureState(context);
    return { ...sizes, rowMs: bestRowMs(context, memory, batch, clock) };
  } finally {
    context.close();
    memory.free();
  }
}

function checkSaidBack({ model, handle }: LlamaContext, settings: RoundTripSettings): void {
  const { native } = model.library;
  const values: ReadonlyArray<readonly [name: string, found: number, expected: number]> = [
    ["n_ctx", native.llama_n_ctx(handle), unusual.roundedTokens],
    ["n_ctx_seq", native.llama_n_ctx_seq(handle), unusual.laneTokens],
    ["n_batch", native.llama_n_batch(handle), unusual.batchTokens],
    ["n_ubatch", native.llama_n_ubatch(handle), unusual.microBatchTokens],
    ["n_seq_max", native.llama_n_seq_max(handle), unusual.lanes],
    ["n_threads", native.llama_n_threads(handle), settings.threads],
  ];
  for (const [name, found, expected] of values) {
    if (found === expected) continue;
    throw new CodedError(
      "library_mismatch",
      `a context made with ${name} = ${expected} says ${found}: parameters lie elsewhere in this library. Reinstall the pinned packages (npm ci).`,
    );
  }
}

function decode({ model, handle }: LlamaContext, memory: BatchMemory, batch: Batch): void {
  const { native, log } = model.library;
  const mark = log.mark();
  const code = native.llama_decode(handle, memory.fill(batch, null));
  native.llama_synchronize(handle);
  if (code !== 0) {
    throw new CodedError(
      "engine_start_failed",
      `the first decode failed with ${code}: ${log.reasonSince(mark) || "libllama gives no reason"}.`,
    );
  }
}

function checkGreedy({ model, handle }: LlamaContext, row: number, vocabSize: number): void {
  const { native } = model.library;
  const address = native.llama_get_logits_ith(handle, row);
  invariant(address !== null, "no logits for a row that asked for them");
  const logits = new Float32Array(koffi.view(address, vocabSize * 4));
  let best = 0;
  for (let token = 1; token < vocabSize; token++) if ((logits[token] as number) > (logits[best] as number)) best = token;
  if (!Number.isFinite(logits[best])) {
    throw new CodedError(
      "engine_start_failed",
      `${model.description} gives logits that are not numbers. The file is damaged or its kernels do not run here.`,
    );
  }
  const sampler = native.llama_sampler_init_greedy();
  const greedy = native.llama_sampler_sample(sampler, handle, row);
  native.llama_sampler_free(sampler);
  if (greedy === best) return;
  throw new CodedError(
    "library_mismatch",
    `the largest logit is of token ${best}, but libllama's greedy sampler picks ${greedy}: logits lie elsewhere in this library. Reinstall the pinned packages (npm ci).`,
  );
}

function measureState({ model, handle }: LlamaContext): Pick<RoundTrip, "kvBytesPerToken" | "recurrentBytesPerLane"> {
  const { native } = model.library;
  const { LLAMA_STATE_SEQ_FLAGS_NONE: flags } = constants;
  const state = new Uint8Array(Number(native.llama_state_seq_get_size_ext(handle, lane, flags)));
  native.llama_state_seq_get_data_ext(handle, state, state.byteLength, lane, flags);
  const layout = readLaneStateLayout(state);
  // a memory of another kind (its state is opaque here): all of it is counted as KV, which errs on the safe side
  if (layout === null) return { kvBytesPerToken: Math.ceil(state.byteLength / promptTokens), recurrentBytesPerLane: 0 };
  return { kvBytesPerToken: bytesPerToken(layout), recurrentBytesPerLane: layout.recurrentBytes };
}

function bestRowMs(context: LlamaContext, memory: BatchMemory, batch: Batch, clock: Clock): number {
  let best = Number.POSITIVE_INFINITY;
  for (let position = promptTokens; position < promptTokens + 3; position++) {
    batch.clear();
    batch.push(lane, position, 1, true);
    const startMs = clock.monotonicMs();
    decode(context, memory, batch);
    best = Math.min(best, clock.monotonicMs() - startMs);
  }
  return best;
}
