import { generateKeyPairSync, webcrypto } from "node:crypto";
import { decodeJwt, SignJWT } from "jose";
import { beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { systemClock, type Clock } from "../../../../src/host/clock.ts";
import { ApiBench, ORIGIN } from "../../../support/control-plane/api-bench.ts";

const Credential = z.object({ clientId: z.string(), clientSecret: z.string() });
const Token = z.object({ access_token: z.string(), token_type: z.literal("Bearer"), expires_in: z.literal(3600) });
const FORM = { "content-type": "application/x-www-form-urlencoded" };

let bench: ApiBench;
let offsetMs: number;
let clientId: string;
let clientSecret: string;

async function newCredential(): Promise<void> {
  const made = await bench.call("POST", "/v2/service-user/bot/token");
  ({ clientId, clientSecret } = Credential.parse(made.json));
}

beforeEach(async () => {
  offsetMs = 0;
  // It stands still, so that a busy machine takes nothing from the life of a token.
  const begunAt = Date.now();
  const clock: Clock = { ...systemClock(), now: () => begunAt + offsetMs };
  bench = await ApiBench.create(clock);
  const statements = [{ effect: "allow", actions: ["nodes::read"] }];
  await bench.call("POST", "/v2/policy", { json: { name: "reader", statements, resources: ["*"] } });
  await bench.call("POST", "/v2/service-user", { json: { name: "bot", policies: ["reader"] } });
  await newCredential();
});

const ask = (form: Record<string, string>, headers: Record<string, string> = {}) =>
  bench.call("POST", "/oauth/token", {
    key: undefined,
    body: new URLSearchParams(form).toString(),
    headers: { ...FORM, ...headers },
  });

const askWell = async (): Promise<string> => {
  const form = { grant_type: "client_credentials", client_id: clientId, client_secret: clientSecret };
  const answer = await ask(form);
  expect(answer.status).toBe(200);
  return Token.parse(answer.json).access_token;
};

const use = async (token: string): Promise<number> =>
  (await bench.call("GET", "/node", { key: `Bearer ${token}` })).status;

describe("POST /oauth/token", () => {
  it("grants a token of one hour that acts as the service user", async () => {
    const token = await askWell();
    expect(decodeJwt(token)).toMatchObject({ iss: ORIGIN, aud: ORIGIN, sub: "bot", client_id: clientId });
    expect(await use(token)).toBe(200);
    const refused = await bench.call("GET", "/v2/policy", { key: `bearer ${token}` });
    expect([refused.status, refused.json]).toMatchObject([403, { details: { action: "permissions::read" } }]);
  });

  it("takes JSON and HTTP Basic as well", async () => {
    const json = { grant_type: "client_credentials", client_id: clientId, client_secret: clientSecret };
    expect((await bench.call("POST", "/oauth/token", { key: undefined, json })).status).toBe(200);
    const authorization = `Basic ${btoa(`${encodeURIComponent(clientId)}:${encodeURIComponent(clientSecret)}`)}`;
    const basic = await ask({ grant_type: "client_credentials" }, { authorization });
    expect(basic.status).toBe(200);
    expect(basic.headers.get("cache-control")).toBe("no-store");
  });

  it.each([
    ["invalid_request", 400, {}],
    ["invalid_request", 400, { grant_type: "" }],
    ["unsupported_grant_type", 400, { grant_type: "password" }],
    ["invalid_client", 401, { grant_type: "client_credentials" }],
    ["invalid_client", 401, { grant_type: "client_credentials", client_id: "a", client_secret: "b" }],
  ])("answers %s", async (error, status, form) => {
    const answer = await ask(form);
    expect([answer.status, answer.json]).toMatchObject([status, { error }]);
    expect(answer.headers.has("www-authenticate")).toBe(status === 401);
  });

  it("refuses a wrong secret, two ways of naming the client, and parameters given twice", async () => {
    const wrong = await ask({
      grant_type: "client_credentials",
      client_id: clientId,
      client_secret: `${clientSecret}x`,
    });
    expect([wrong.status, wrong.json]).toMatchObject([401, { error: "invalid_client" }]);
    const authorization = `Basic ${btoa(`${clientId}:${clientSecret}`)}`;
    const twice = await ask({ grant_type: "client_credentials", client_secret: clientSecret }, { authorization });
    expect([twice.status, twice.json]).toMatchObject([400, { error: "invalid_request" }]);
    const body = "grant_type=client_credentials&grant_type=client_credentials";
    expect((await bench.call("POST", "/oauth/token", { key: undefined, body, headers: FORM })).status).toBe(400);
  });

  it.each([
    ["{", "application/json", 400],
    ["[]", "application/json", 400],
    ['{"grant_type":1}', "application/json", 400],
    ["grant_type=x", "text/plain", 415],
    ["", "", 415],
    ["x".repeat(20_000), "application/x-www-form-urlencoded", 413],
    [new Uint8Array([0xff]), "application/x-www-form-urlencoded", 400],
  ])("refuses %.20s as %s", async (body, type, status) => {
    const answer = await bench.call("POST", "/oauth/token", {
      key: undefined,
      body,
      headers: { "content-type": type },
    });
    expect([answer.status, answer.json]).toMatchObject([status, { error: "invalid_request" }]);
  });

  it.each(["Basic", "Basic !", `Basic ${btoa("nocolon")}`, `Basic ${btoa("%E0%A4%A:x")}`, "Bearer x"])(
    "refuses the header %s",
    async (authorization) => {
      const answer = await ask({ grant_type: "client_credentials" }, { authorization });
      expect([answer.status, answer.json]).toMatchObject([401, { error: "invalid_client" }]);
    },
  );
});

describe("a token", () => {
  it("ends after one hour", async () => {
    const token = await askWell();
    offsetMs = 3_599_000;
    expect(await use(token)).toBe(200);
    offsetMs = 3_601_000;
    const answer = await bench.call("GET", "/node", {
      key: `Bearer ${token}`,
      headers: { accept: "text/html" },
    });
    expect(answer.status).toBe(401);
    expect(answer.headers.get("www-authenticate")).toContain('error="invalid_token"');
  });

  it("ends with the credential it was made from", async () => {
    const token = await askWell();
    await newCredential();
    expect(await use(token)).toBe(401);
    expect(await use(await askWell())).toBe(200);
  });

  it("follows the policies as they change", async () => {
    const token = await askWell();
    const statements = [{ effect: "deny", actions: ["nodes::read"] }];
    await bench.call("PUT", "/v2/policy/reader", { json: { statements, resources: ["*"] } });
    expect(await use(token)).toBe(403);
  });

  it("is refused when anything of it is not ours", async () => {
    const forge = async () => {
      const pair = generateKeyPairSync("ed25519");
      const der = pair.privateKey.export({ type: "pkcs8", format: "der" });
      const key = await webcrypto.subtle.importKey("pkcs8", der, "Ed25519", false, ["sign"]);
      return new SignJWT({ client_id: clientId })
        .setProtectedHeader({ alg: "EdDSA", typ: "at+jwt" })
        .setIssuer(ORIGIN)
        .setAudience(ORIGIN)
        .setSubject("bot")
        .setIssuedAt()
        .setExpirationTime("1h")
        .sign(key);
    };
    expect(await use(await forge())).toBe(401);
    const [head = "", payload = "", signature = ""] = (await askWell()).split(".");
    expect(await use(`${head}.${payload}.${signature.slice(0, -4)}AAAA`)).toBe(401);
    const none = Buffer.from('{"alg":"none","typ":"at+jwt"}').toString("base64url");
    expect(await use(`${none}.${payload}.`)).toBe(401);
    const other = Buffer.from(JSON.stringify({ ...decodeJwt(`${head}.${payload}.`), sub: "admin" })).toString(
      "base64url",
    );
    expect(await use(`${head}.${other}.${signature}`)).toBe(401);
  });

  it("of a client that never was is refused, however well signed", async () => {
    const { token } = await bench.deps.tokens.issue({ user: "bot", clientId: "other" });
    expect(await use(token)).toBe(401);
  });
});
