/**
 * Prometheus series under one or two names: ours (`kvasir_…`), and where vLLM has the same quantity, vLLM's (`vllm:…`, with its
 * `model_name` label), so that existing dashboards work. One registry a server; nothing global.
 */

import { Counter, Gauge, Histogram, Registry } from "prom-client";

export interface SeriesOptions {
  readonly help: string;
  readonly names: readonly string[];
  readonly labels?: readonly string[];
}

type Labels = Readonly<Record<string, string | number>>;

export interface CounterSeries {
  inc(value?: number, labels?: Labels): void;
}

export interface GaugeSeries {
  set(value: number, labels?: Labels): void;
}

export interface HistogramSeries {
  observe(value: number): void;
}

export class MetricRegistry {
  readonly #own = new Registry();
  readonly #vllm = new Registry();

  constructor(modelName: string) {
    this.#vllm.setDefaultLabels({ model_name: modelName });
  }

  counter(options: SeriesOptions): CounterSeries {
    const counters = this.#each(options, (configuration) => new Counter(configuration));
    return {
      inc: (value = 1, labels = {}) => {
        for (const counter of counters) counter.inc(labels, value);
      },
    };
  }

  gauge(options: SeriesOptions): GaugeSeries {
    const gauges = this.#each(options, (configuration) => new Gauge(configuration));
    return {
      set: (value, labels = {}) => {
        for (const gauge of gauges) gauge.set(labels, value);
      },
    };
  }

  /** @param options.buckets upper bounds */
  histogram(options: SeriesOptions & { readonly buckets: readonly number[] }): HistogramSeries {
    const histograms = this.#each(
      options,
      (configuration) => new Histogram({ ...configuration, buckets: [...options.buckets] }),
    );
    return {
      observe: (value) => {
        for (const histogram of histograms) histogram.observe(value);
      },
    };
  }

  get contentType(): string {
    return this.#own.contentType;
  }

  async render(): Promise<string> {
    return `${await this.#own.metrics()}\n${await this.#vllm.metrics()}`;
  }

  #each<Series>(
    { help, names, labels = [] }: SeriesOptions,
    make: (configuration: { name: string; help: string; labelNames: string[]; registers: Registry[] }) => Series,
  ): Series[] {
    return names.map((name) => {
      const registry = name.startsWith("vllm:") ? this.#vllm : this.#own;
      return make({ name, help, labelNames: [...labels], registers: [registry] });
    });
  }
}
