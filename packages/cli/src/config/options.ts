/**
 * All options of `kvasir serve` and `kvasir start`, once. Flag (`--max-body-mib`), variable (`KVASIR_MAX_BODY_MIB`), key of the
 * configuration file (`maxBodyMib`), `--help` and `--print-config` follow from this table; `docs/serving.md` is tested against it.
 */

import { DEFAULT_MODEL } from "@kvasir/models";
import { automatic, choice, integer, list, optionalText, type OptionSpec, text, toggle } from "./option.ts";

export const kvDtypes = ["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0"] as const;

export const options = {
  model: text(DEFAULT_MODEL, "a .gguf file, hf:owner/repo[@revision][:file or quant], or a name that `kvasir models` lists", {
    placeholder: "MODEL",
  }),
  host: text("127.0.0.1", "address to listen on; any but a loopback address demands an API key", { placeholder: "ADDRESS" }),
  port: integer(8484, { least: 0, most: 65_535 }, "port to listen on; 0 takes a free one", { placeholder: "PORT" }),
  apiKey: optionalText("key that requests must carry; better in a file or in KVASIR_API_KEY than on the command line", {
    placeholder: "KEY",
    isSecret: true,
  }),
  apiKeyFile: optionalText("file whose first line is the API key", { placeholder: "FILE" }),
  allowedHosts: list("more values of the Host header to accept, beside the address itself and localhost", {
    placeholder: "HOST,…",
  }),
  corsOrigins: list("web origins that may call the server from a browser", { placeholder: "ORIGIN,…" }),
  maxContextTokens: automatic(
    "integer",
    { least: 16 },
    "tokens of one request, prompt and output; auto: what the model was trained for, as far as memory allows",
    { placeholder: "TOKENS" },
  ),
  maxConcurrency: integer(4, { least: 1, most: 256 }, "requests that run at the same time; more wait"),
  lanes: automatic(
    "integer",
    { least: 1, most: 256 },
    "places that hold the KV of a request or an idle session; auto: one a running request",
  ),
  kvCapacityTokens: automatic("integer", { least: 16 }, "tokens of KV in all lanes together, instead of --lanes", {
    placeholder: "TOKENS",
  }),
  hostCacheMib: automatic(
    "integer",
    { least: 0 },
    "host memory for sessions that are not in a lane; auto: a quarter of the free memory; 0: none",
    { placeholder: "MIB" },
  ),
  diskCacheMib: integer(0, { least: 0 }, "disk space for sessions, which then survive a restart; 0: none", {
    placeholder: "MIB",
  }),
  diskCacheFolder: optionalText("folder of the sessions on disk; default: prefixes in the cache folder", {
    placeholder: "FOLDER",
  }),
  kvDtype: choice(
    kvDtypes,
    "f16",
    "type of the KV cells; quantized types save memory and make prefill on a CPU two to four times slower",
  ),
  threads: automatic(
    "integer",
    { least: 1, most: 512 },
    "compute threads; auto: the physical cores, one fewer when the machine is busy",
  ),
  batchTokens: integer(512, { least: 32, most: 65_536 }, "tokens of one engine step at most", { placeholder: "TOKENS" }),
  itlTargetMs: integer(250, { least: 1 }, "longest gap in a running stream while another prompt is computed", {
    placeholder: "MS",
  }),
  speculation: choice(
    ["lookup", "off"],
    "lookup",
    "guess tokens from text that stood in the prompt or the output before, as long as it pays; the output stays the same",
  ),
  draftTokens: integer(8, { least: 1, most: 64 }, "tokens guessed in one step at most", { placeholder: "TOKENS" }),
  maxPendingRequests: integer(16, { least: 0 }, "requests that may wait; one more gets 429"),
  pendingTimeoutMs: integer(600_000, { least: 1 }, "longest wait of a request before it gets 503", { placeholder: "MS" }),
  temperature: automatic(
    "number",
    { least: 0, most: 100 },
    "temperature of requests that set none; auto: the model's own advice, else 0.8",
  ),
  topK: automatic("integer", { least: 0 }, "top_k of requests that set none; auto: the model's own advice, else 40"),
  topP: automatic("number", { least: 0, most: 1 }, "top_p of requests that set none; auto: the model's own advice, else 0.95"),
  minP: automatic("number", { least: 0, most: 1 }, "min_p of requests that set none; auto: the model's own advice, else 0.05"),
  gpu: choice(
    ["auto", "none", "cuda", "vulkan", "metal"],
    "auto",
    "device; cuda and vulkan fetch their build of libllama when it is missing, auto uses what is there",
  ),
  gpuLayers: automatic("integer", { least: 0 }, "layers on the GPU; auto: all", { placeholder: "NUMBER" }),
  requestLog: optionalText("file for one JSON record a phase of each request", { placeholder: "FILE" }),
  requestLogMaxMib: integer(64, { least: 0 }, "size at which the request log is rotated (three old files stay); 0: never", {
    placeholder: "MIB",
  }),
  maxBodyMib: integer(32, { least: 1, most: 1024 }, "largest request body", { placeholder: "MIB" }),
  drainTimeoutMs: integer(30_000, { least: 0 }, "time that running requests have to end when the server stops", {
    placeholder: "MS",
  }),
  logLevel: choice(["error", "warn", "info", "debug"], "info", "least important messages that are shown"),
  libraryDirectory: optionalText("folder with a libllama of your own, instead of the installed package", {
    placeholder: "FOLDER",
  }),
  allowUnverifiedLibrary: toggle("run a libllama whose files are not among the tested ones"),
} as const satisfies Record<string, OptionSpec<unknown>>;

export type OptionKey = keyof typeof options;

/** What every option came to. */
export type Configuration = {
  readonly [Key in OptionKey]: (typeof options)[Key] extends OptionSpec<infer Value> ? Value : never;
};

export const optionKeys = Object.keys(options) as readonly OptionKey[];

/** `maxBodyMib` → `max-body-mib` */
export function flagName(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

/** `maxBodyMib` → `KVASIR_MAX_BODY_MIB` */
export function variableName(key: string): string {
  return `KVASIR_${flagName(key).replaceAll("-", "_").toUpperCase()}`;
}
