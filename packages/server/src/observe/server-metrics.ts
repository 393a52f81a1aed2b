/** All metrics of one server. */

import type { EngineStatus } from "@kvasir/engine";
import type { Generator } from "../generator.ts";
import { EngineMetrics } from "./engine-metrics.ts";
import { type CounterSeries, MetricRegistry } from "./metric-registry.ts";
import { RequestMetrics } from "./request-metrics.ts";

export class ServerMetrics {
  readonly requests: RequestMetrics;
  readonly #registry: MetricRegistry;
  readonly #engine: EngineMetrics;
  readonly #responses: CounterSeries;

  constructor(modelName: string) {
    this.#registry = new MetricRegistry(modelName);
    this.requests = new RequestMetrics(this.#registry);
    this.#engine = new EngineMetrics(this.#registry);
    this.#responses = this.#registry.counter({
      help: "HTTP responses.",
      names: ["kvasir_http_responses_total"],
      labels: ["route", "method", "status"],
    });
  }

  /** @param route the pattern, never the path: a label must not grow with what clients send */
  responded(route: string, method: string, status: number): void {
    this.#responses.inc(1, { route, method, status });
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** The text of `/metrics`. @param status null when the engine does not answer: its last numbers stay */
  async render(generator: Generator, status: EngineStatus | null): Promise<string> {
    this.#engine.refresh(generator, this.requests.inFlight, status);
    return this.#registry.render();
  }
}
