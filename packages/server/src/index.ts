export * from "./embedded-generator.ts";
export * from "./engine-supervisor.ts";
export * from "./generator.ts";
export * from "./http/access-rules.ts";
export * from "./http/http-server.ts";
export * from "./http/server-options.ts";
export { noRecordWriter, type RecordWriter } from "./observe/request-log.ts";
export * from "./sampling-defaults.ts";
