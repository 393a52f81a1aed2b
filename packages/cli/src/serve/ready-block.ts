/** What a person needs to know when the server is ready, and a command to try it with. */

import type { BackendFacts } from "@kvasir/engine";
import { formatBytes, formatCount } from "@kvasir/kit";
import type { ResolvedModel } from "@kvasir/models";
import type { Configuration } from "../config/options.ts";
import type { ResolvedConfiguration } from "../config/resolve-configuration.ts";
import { renderTable } from "../table.ts";
import type { CapacityPlan } from "./capacity-plan.ts";
import type { StorePlan } from "./store-plan.ts";

export interface ReadyFacts {
  /** Base address for clients on this machine. */
  readonly address: string;
  readonly model: Pick<ResolvedModel, "id" | "facts">;
  readonly plan: CapacityPlan;
  readonly storePlan: StorePlan;
  readonly backend: BackendFacts;
  readonly configuration: ResolvedConfiguration;
}

export function readyBlock({ address, model, plan, storePlan, backend, configuration }: ReadyFacts): string {
  const { values } = configuration;
  const { facts } = model;
  const limit = plan.windowLimit === "memory" ? ", limited by memory" : "";
  const rows = [
    ["model", `${model.id} (${[facts.architecture, facts.fileType, formatBytes(facts.tensorBytes)].join(", ")})`],
    ["context", `${formatCount(backend.laneTokens)} tokens a request${limit}`],
    ["lanes", `${backend.laneCount}, ${plan.maxConcurrency} requests at a time`],
    ["KV", `${formatBytes(backend.kvBytes)} (${values.kvDtype}, ${formatBytes(backend.kvBytesPerToken)} a token)`],
    ["cache", cacheLine(storePlan, backend)],
    ["threads", `${backend.threads}, ${deviceOf(backend)}`],
  ];
  return `Kvasir is ready on ${address}\n${renderTable(rows)}\n\n${curlLine(address, model.id, configuration)}\n`;
}

/** Where sessions go that are not in a lane. */
function cacheLine({ hostCacheBytes, disk }: StorePlan, { pageRefusal }: BackendFacts): string {
  if (pageRefusal !== null) return `lanes only: ${pageRefusal}`;
  const onDisk = disk === null ? "" : `, ${formatBytes(disk.budgetBytes)} on disk`;
  return `${formatBytes(hostCacheBytes)} of host memory${onDisk}`;
}

/** The description is the model's and, after a comma, the device's. */
function deviceOf({ description }: BackendFacts): string {
  return description.slice(description.indexOf(", ") + 1).trim();
}

/** A line that answers when it is pasted into a shell. */
function curlLine(address: string, modelId: string, configuration: ResolvedConfiguration): string {
  const body = JSON.stringify({ model: modelId, messages: [{ role: "user", content: "Say hello" }] });
  const key = keyHeader(configuration);
  return `curl ${address}/v1/chat/completions -H 'content-type: application/json'${key} -d ${quoted(body)}`;
}

/** The key itself is not printed: the line takes it from where it is. */
function keyHeader({ values, sources }: ResolvedConfiguration): string {
  if (values.apiKey !== null)
    return ` -H "authorization: Bearer ${sources.apiKey === "environment" ? "$KVASIR_API_KEY" : "YOUR-KEY"}"`;
  return values.apiKeyFile === null ? "" : ` -H "authorization: Bearer $(head -n 1 ${quoted(values.apiKeyFile)})"`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** Where clients on this machine reach a server that listens on `host`. */
export function clientAddress(host: Configuration["host"], port: number): string {
  const name = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host;
  return `http://${name.includes(":") ? `[${name}]` : name}:${port}`;
}
