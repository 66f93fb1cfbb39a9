import { beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { createApi } from "../../../../src/controller/http/api.ts";
import { ApiBench, members } from "../../../support/control-plane/api-bench.ts";

const Credential = z.object({ clientId: z.string(), clientSecret: z.string() });

let bench: ApiBench;
let clientId = "";
let secret = "";
const use = (key: string, headers: Record<string, string> = {}) => bench.call("GET", "/cluster", { key, headers });

beforeEach(async () => {
  bench = await ApiBench.create();
  const statements = [{ effect: "allow", actions: ["nodes::read"] }];
  await bench.call("POST", "/v2/policy", { json: { name: "reader", statements, resources: ["*"] } });
  await bench.call("POST", "/v2/service-user", { json: { name: "bot", policies: ["reader"] } });
  const made = Credential.parse((await bench.call("POST", "/v2/service-user/bot/token")).json);
  clientId = made.clientId;
  secret = made.clientSecret;
});

describe("a credential", () => {
  it.each(["holdfast-token ", "HOLDFAST-TOKEN ", "x-token  ", ""])("is taken after %j", async (word) => {
    expect((await use(`${word}${clientId}:${secret}`)).status).toBe(200);
    for (const wrong of [`${clientId}:${secret}x`, `${secret}:${clientId}`, `${clientId}:`, clientId, `:${secret}`]) {
      const answer = await use(`${word}${wrong}`);
      expect([answer.status, answer.json]).toMatchObject([401, { code: "unauthorized" }]);
    }
  });

  it.each(["token ", "Basic ", "Token ", "holdfast "])("is refused after %j", async (word) => {
    expect((await use(`${word}${clientId}:${secret}`)).status).toBe(401);
  });

  it("after Bearer is refused with the way to send it", async () => {
    const answer = await use(`Bearer ${clientId}:${secret}`);
    const told = expect.stringContaining("'holdfast-token <clientId>:<secret>'") as string;
    expect([answer.status, answer.json]).toEqual([401, { code: "unauthorized", error: told, message: told }]);
    expect(answer.text).not.toContain(secret);
  });

  it("ends with the one that replaces it", async () => {
    await bench.call("POST", "/v2/service-user/bot/token");
    expect((await use(`${clientId}:${secret}`)).status).toBe(401);
  });

  it("has the rights of its service user and no more", async () => {
    const key = `holdfast-token ${clientId}:${secret}`;
    expect((await bench.call("GET", "/v2/policy", { key })).status).toBe(403);
  });
});

describe("POST /v2/auth/token", () => {
  const ask = (json: unknown) => bench.call("POST", "/v2/auth/token", { key: undefined, json });
  const Issued = z.strictObject({ token: z.string(), expiresAt: z.int() });

  it("exchanges a credential for a token of 15 minutes", async () => {
    const before = Math.floor(Date.now() / 1000);
    const { token, expiresAt } = Issued.parse((await ask({ clientId, secret })).json);
    expect(expiresAt - before - 900).toBeGreaterThanOrEqual(0);
    expect(expiresAt).toBeLessThanOrEqual(Math.floor(Date.now() / 1000) + 900);
    expect((await use(`Bearer ${token}`)).status).toBe(200);
    await bench.call("POST", "/v2/service-user/bot/token");
    expect((await use(`Bearer ${token}`)).status).toBe(401);
  });

  it("refuses what is no credential", async () => {
    for (const wrong of [
      { clientId, secret: "x" },
      { clientId: "x", secret },
    ]) {
      const answer = await ask(wrong);
      expect([answer.status, answer.json]).toMatchObject([401, { code: "unauthorized" }]);
    }
    expect((await ask({ clientId, secret: "x".repeat(16 * 1024) })).status).toBe(413);
    expect((await ask({ clientId })).json).toEqual(["secret: is missing"]);
    expect((await ask(null)).status).toBe(422);
  });
});

describe("a wrong credential", () => {
  it.each([
    ["GET", "/v2/policy", { authorization: "x-token a:b" }, undefined],
    ["GET", "/v2/policy", { authorization: "a:b" }, undefined],
    ["POST", "/v2/auth/token", { "content-type": "application/json" }, '{"clientId":"a","secret":"b"}'],
  ])("counts as a failed authentication at %s %s, and is not logged", async (method, path, headers, body) => {
    const app = createApi({ ...bench.deps, onAuthFailure: () => 7 });
    bench.logged.length = 0;
    const answer = await app.request(path, { method, headers, ...(body === undefined ? {} : { body }) });
    expect([answer.status, answer.headers.get("retry-after")]).toEqual([429, "7"]);
    expect(bench.logged).toHaveLength(1);
    expect(bench.logged[0]).not.toMatch(/a:b|secret/);
  });
});

describe("a refused credential", () => {
  it.each<Record<string, string>>([{ accept: "text/html,*/*" }, { "sec-fetch-mode": "cors" }])(
    "is answered with a challenge to a browser: %j",
    async (headers) => {
      const answer = await use("Bearer a.b.c", headers);
      expect(answer.headers.get("www-authenticate")).toBe('Bearer realm="holdfast", error="invalid_token"');
    },
  );

  it("is answered without one to a program", async () => {
    const answer = await use("wrong", { accept: "application/json" });
    expect(answer.headers.has("www-authenticate")).toBe(false);
    expect(Object.keys(members(answer.json)).sort()).toEqual(["code", "error", "message"]);
  });
});
