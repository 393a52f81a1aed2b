/** Gauges that are read at the moment of a scrape: lanes, KV, steps, the engine's state. */

import type { EngineStatus } from "@kvasir/engine";
import type { Generator, GeneratorState } from "../generator.ts";
import type { MetricRegistry } from "./metric-registry.ts";

const STATES: readonly GeneratorState[] = ["starting", "ready", "restarting", "failed", "stopping"];

export class EngineMetrics {
  readonly #gauges;

  constructor(registry: MetricRegistry) {
    const gauge = (help: string, names: string[], labels: string[] = []) => registry.gauge({ help, names, labels });
    this.#gauges = {
      running: gauge("Requests that own a lane.", ["kvasir_requests_running", "vllm:num_requests_running"]),
      waiting: gauge("Requests that wait for a lane.", ["kvasir_requests_waiting", "vllm:num_requests_waiting"]),
      state: gauge("1 for the state that the engine is in.", ["kvasir_engine_state"], ["state"]),
      restarts: gauge("Times that the engine was started again.", ["kvasir_engine_restarts"]),
      lanes: gauge("Lanes by what they hold: a running request, an idle session, nothing.", ["kvasir_lanes"], ["state"]),
      kvTokens: gauge("Tokens whose KV is on the device.", ["kvasir_kv_tokens"], ["state"]),
      kvCapacity: gauge("Tokens that all lanes can hold.", ["kvasir_kv_capacity_tokens"]),
      kvBytes: gauge("Bytes of device memory that the KV of all lanes occupies.", ["kvasir_kv_bytes"]),
      kvUsage: gauge("Share of the KV capacity that running requests use, 0 to 1.", ["vllm:kv_cache_usage_perc"]),
      memory: gauge("Resident bytes of the server process; the engine is a process of its own.", [
        "kvasir_server_resident_bytes",
      ]),
      steps: gauge("Steps since the engine started.", ["kvasir_engine_steps"]),
      stepSeconds: gauge("Seconds spent in steps since the engine started.", ["kvasir_engine_step_seconds"]),
      decodeRows: gauge("Rows decoded; divided by the decode steps it is the mean batch.", ["kvasir_engine_decode_rows"]),
      storeBytes: gauge("Bytes of stored prefixes by tier.", ["kvasir_store_bytes"], ["tier"]),
      storeBudget: gauge("Bytes that stored prefixes may take, by tier.", ["kvasir_store_budget_bytes"], ["tier"]),
      storePages: gauge("Pages of stored prefixes by tier.", ["kvasir_store_pages"], ["tier"]),
      storeEvicted: gauge("Pages evicted since the engine started, by tier.", ["kvasir_store_evicted_pages"], ["tier"]),
      decodeSteps: gauge("Steps in which something decoded.", ["kvasir_engine_decode_steps"]),
    };
  }

  /** @param status null when the engine does not answer: its last numbers stay */
  refresh(
    generator: Generator,
    inFlight: { readonly running: number; readonly waiting: number },
    status: EngineStatus | null,
  ): void {
    const gauges = this.#gauges;
    gauges.running.set(inFlight.running);
    gauges.waiting.set(inFlight.waiting);
    gauges.restarts.set(generator.restarts);
    gauges.memory.set(process.memoryUsage.rss());
    for (const state of STATES) gauges.state.set(state === generator.state ? 1 : 0, { state });
    if (!status) return;
    this.#lanes(status, generator);
    if (status.store) this.#store(status.store);
    const { counters } = status;
    gauges.steps.set(counters.steps);
    gauges.stepSeconds.set(counters.stepSeconds);
    gauges.decodeRows.set(counters.decodeRows);
    gauges.decodeSteps.set(counters.decodeSteps);
  }

  #store({ tiers, counters }: NonNullable<EngineStatus["store"]>): void {
    const gauges = this.#gauges;
    gauges.storeBytes.set(tiers.hostBytes, { tier: "host" });
    gauges.storeBytes.set(tiers.diskBytes, { tier: "disk" });
    gauges.storeBudget.set(tiers.hostBudgetBytes, { tier: "host" });
    gauges.storeBudget.set(tiers.diskBudgetBytes, { tier: "disk" });
    gauges.storePages.set(tiers.hostPages, { tier: "host" });
    gauges.storePages.set(tiers.diskPages, { tier: "disk" });
    gauges.storeEvicted.set(counters.evictedHostPages, { tier: "host" });
    gauges.storeEvicted.set(counters.evictedDiskPages, { tier: "disk" });
  }

  #lanes({ lanes }: EngineStatus, { facts }: Generator): void {
    const gauges = this.#gauges;
    const capacityTokens = facts ? facts.laneCount * facts.laneTokens : 0;
    gauges.kvCapacity.set(capacityTokens);
    gauges.kvBytes.set(facts?.kvBytes ?? 0);
    for (const state of ["empty", "idle", "running"] as const) {
      const held = lanes.filter((lane) => lane.state === state);
      const tokens = held.reduce((sum, lane) => sum + lane.tokens, 0);
      gauges.lanes.set(held.length, { state });
      gauges.kvTokens.set(tokens, { state });
      if (state === "running") gauges.kvUsage.set(capacityTokens === 0 ? 0 : tokens / capacityTokens);
    }
  }
}
