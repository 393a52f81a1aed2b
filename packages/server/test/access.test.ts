import { request as httpRequest } from "node:http";
import { CodedError } from "@kvasir/kit";
import { afterEach, describe, expect, it } from "vitest";
import { AccessRules, isLoopback } from "../src/http/access-rules.ts";
import type { ServerOptions } from "../src/http/server-options.ts";
import { getJson, postJson } from "./support/http-client.ts";
import { type TestServer, testServer } from "./support/test-server.ts";

function codeOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (error instanceof CodedError) return error.code;
    throw error;
  }
  return "";
}

const rules = (options: Partial<ServerOptions> = {}) =>
  new AccessRules({ host: "127.0.0.1", apiKeys: [], allowedHosts: [], corsOrigins: [], ...options });

describe("access rules", () => {
  it("know what only this machine can reach", () => {
    for (const host of ["127.0.0.1", "127.9.8.7", "localhost", "::1"]) expect(isLoopback(host)).toBe(true);
    for (const host of ["0.0.0.0", "::", "192.168.1.2", "example.org", "1127.0.0.1", "127.0.0.1.evil.com"])
      expect(isLoopback(host)).toBe(false);
  });

  it("demand a key for any other address", () => {
    expect(codeOf(() => rules({ host: "0.0.0.0" }))).toBe("invalid_configuration");
    expect(codeOf(() => rules({ host: "0.0.0.0", apiKeys: ["k"] }))).toBe("");
  });

  it.each(["localhost", "LOCALHOST:8484", "127.0.0.1:1", "[::1]:8484", "[::1]"])("answer to the Host %s", (host) => {
    expect(codeOf(() => rules().checkHost(host))).toBe("");
  });

  it.each(["evil.com", "localhost.evil.com", "evil.com:8484", "", undefined, "127.0.0.1@evil.com", "127.0.0.2"])(
    "refuse the Host %s",
    (host) => {
      expect(codeOf(() => rules().checkHost(host))).toBe("host_not_allowed");
    },
  );

  it("take more hosts when told, and any on an address that has a key", () => {
    expect(codeOf(() => rules({ allowedHosts: ["Box.lan"] }).checkHost("box.lan:8484"))).toBe("");
    expect(codeOf(() => rules({ host: "0.0.0.0", apiKeys: ["k"] }).checkHost("anything"))).toBe("");
  });

  it("keep foreign pages out, and let the server's own and listed ones in", () => {
    expect(rules().checkOrigin(undefined, "localhost:8484")).toBe(false);
    expect(rules().checkOrigin("http://localhost:8484", "localhost:8484")).toBe(false);
    for (const origin of ["http://evil.com", "http://localhost:3000", "null", "nonsense"]) {
      expect(codeOf(() => rules().checkOrigin(origin, "localhost:8484"))).toBe("origin_not_allowed");
    }
    expect(rules({ corsOrigins: ["http://localhost:3000"] }).checkOrigin("http://localhost:3000", "localhost:8484")).toBe(true);
    expect(rules({ corsOrigins: ["*"] }).checkOrigin("null", "localhost:8484")).toBe(true);
  });

  it("take a key as Bearer or x-api-key, one of several", () => {
    const keyed = rules({ apiKeys: ["first", "second"] });
    expect(codeOf(() => keyed.checkKey({ authorization: "Bearer second" }))).toBe("");
    expect(codeOf(() => keyed.checkKey({ authorization: "bearer first" }))).toBe("");
    expect(codeOf(() => keyed.checkKey({ "x-api-key": "first" }))).toBe("");
    expect(codeOf(() => keyed.checkKey({}))).toBe("missing_api_key");
    expect(codeOf(() => keyed.checkKey({ authorization: "Basic Zmlyc3Q=" }))).toBe("missing_api_key");
    for (const key of ["firs", "firstt", "FIRST", "first second"]) {
      expect(codeOf(() => keyed.checkKey({ "x-api-key": key }))).toBe("invalid_api_key");
    }
  });
});

describe("a server", () => {
  let server: TestServer;
  afterEach(() => server.close());

  it("with a key answers nothing but /health without it", async () => {
    server = await testServer({ server: { apiKeys: ["secret"] } });
    expect((await getJson(`${server.url}/health`)).status).toBe(200);
    for (const path of ["/", "/ready", "/metrics", "/v1/models", "/nowhere"]) {
      const answer = await getJson(server.url + path);
      expect(answer).toMatchObject({ status: 401, body: { error: { code: "missing_api_key", type: "authentication_error" } } });
    }
    const body = { messages: [{ role: "user", content: "x" }] };
    expect(await postJson(`${server.url}/v1/chat/completions`, body, { authorization: "Bearer wrong" })).toMatchObject({
      status: 401,
      body: { error: { code: "invalid_api_key" } },
    });
    expect((await postJson(`${server.url}/v1/chat/completions`, body, { authorization: "Bearer secret" })).status).toBe(200);
    expect((await getJson(`${server.url}/ready`, { "x-api-key": "secret" })).status).toBe(200);
  });

  it("refuses a foreign Host and a foreign page", async () => {
    server = await testServer();
    expect(await getWithHeaders(`${server.url}/health`, { host: "evil.com" })).toBe(403);
    expect(await getJson(`${server.url}/v1/models`, { origin: "https://evil.com" })).toMatchObject({
      status: 403,
      body: { error: { code: "origin_not_allowed" } },
    });
    const preflight = await fetch(`${server.url}/v1/chat/completions`, {
      method: "OPTIONS",
      headers: { origin: "https://evil.com", "access-control-request-method": "POST" },
    });
    expect(preflight.status).toBe(403);
    expect(preflight.headers.get("access-control-allow-origin")).toBeNull();
  });

  it("lets a listed page in, preflight without a key, streams too", async () => {
    const origin = "https://app.example";
    server = await testServer({ server: { apiKeys: ["secret"], corsOrigins: [origin] } });
    const preflight = await fetch(`${server.url}/v1/chat/completions`, {
      method: "OPTIONS",
      headers: {
        origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,x-stainless-os",
      },
    });
    expect(preflight.status).toBe(204);
    expect(preflight.headers.get("access-control-allow-origin")).toBe(origin);
    expect(preflight.headers.get("access-control-allow-headers")).toBe("authorization,x-stainless-os");
    const response = await fetch(`${server.url}/v1/chat/completions`, {
      method: "POST",
      headers: { origin, "content-type": "application/json", authorization: "Bearer secret" },
      body: JSON.stringify({ messages: [{ role: "user", content: "x" }], stream: true }),
    });
    expect(response.headers.get("access-control-allow-origin")).toBe(origin);
    expect(response.headers.get("x-request-id")).toMatch(/^chatcmpl-/);
    expect(await response.text()).toContain("[DONE]");
  });
});

function getWithHeaders(url: string, headers: Record<string, string>): Promise<number> {
  return new Promise((resolve, reject) => {
    httpRequest(url, { headers, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    })
      .on("error", reject)
      .end();
  });
}
