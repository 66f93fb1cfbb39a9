import { beforeEach, describe, expect, it } from "vitest";
import { ApiBench, members } from "../../../support/control-plane/api-bench.ts";
import { DOMAIN, ORG } from "../../../support/control-plane/fleet-stage.ts";

let bench: ApiBench;
const get = (path: string, key?: string) => bench.call("GET", path, key === undefined ? {} : { key });

beforeEach(async () => {
  bench = await ApiBench.create();
});

describe("GET /org/mine", () => {
  it("tells every holder of a credential who he works for, and counts the nodes", async () => {
    await bench.fleet.add({ name: "one" });
    await bench.fleet.add({ name: "two" });
    await bench.fleet.add({ name: "laptop", type: "Agent" });
    const answer = await get("/org/mine", await bench.keyFor(["alarms::read"]));
    expect([answer.status, answer.json]).toEqual([
      200,
      { uid: ORG, domain: DOMAIN, name: DOMAIN, idp_provider: "holdfast", licenses: { appliances: 2, agents: 1 } },
    ]);
  });

  it("is not for those without one", async () => {
    for (const key of [undefined, "wrong"]) {
      expect((await bench.call("GET", "/org/mine", { key })).status).toBe(401);
    }
  });
});

describe("PUT /org/mine", () => {
  it("replaces contacts, and ignores what is not for writing", async () => {
    const put = (json: object) => bench.call("PUT", "/org/mine", { json });
    const contact = { name: "A", phone: null, email: "a@example.net" };
    const answer = await put({ uid: "x", domain: "evil.example", technicalContact: contact, licenses: {} });
    const whole = { uid: ORG, domain: DOMAIN, name: DOMAIN, technicalContact: contact };
    expect(answer.json).toMatchObject(whole);
    expect((await get("/org/mine", await bench.keyFor(["alarms::read"]))).json).toEqual(answer.json);
    expect(members((await put({ name: "Acme" })).json)).toMatchObject({ name: "Acme", domain: DOMAIN });
    expect(members((await get("/org/mine")).json)["technicalContact"]).toBeUndefined();
    expect(await bench.fleet.changes()).toEqual(["admin: Organization changed", "admin: Organization changed"]);
  });
});

describe("/org/auth", () => {
  const put = (json: object, key?: string) =>
    bench.call("PUT", "/org/auth", { json, ...(key === undefined ? {} : { key }) });

  it("is the built-in accounts, under the word that was written", async () => {
    expect((await get("/org/auth")).json).toEqual({ idp_provider: "holdfast", subdomain: DOMAIN });
    const auth = { idp_provider: "local", subdomain: "Acme.example.net" };
    expect((await put(auth)).json).toEqual(auth);
    expect((await get("/org/auth")).json).toEqual(auth);
    expect(members((await get("/org/mine")).json)["idp_provider"]).toBe("local");
  });

  it("takes the word of the caller's credential and the stored one for the built-in accounts, and no other", async () => {
    const auth = { idp_provider: "acme", subdomain: "" };
    const line = /^idp_provider: there is no identity provider acme; holdfast and local name the built-in accounts$/;
    const refused = await put(auth);
    expect([refused.status, refused.json]).toEqual([422, [expect.stringMatching(line)]]);
    const statements = [{ effect: "allow", actions: ["identity-providers::modify"] }];
    await bench.call("POST", "/v2/policy", { json: { name: "idp", statements, resources: ["*"] } });
    await bench.call("POST", "/v2/service-user", { json: { name: "bot", policies: ["idp"] } });
    const { clientId, secret } = members((await bench.call("POST", "/v2/service-user/bot/token")).json);
    const credential = `acme-token ${String(clientId)}:${String(secret)}`;
    expect((await put({ ...auth, idp_provider: "other" }, credential)).status).toBe(422);
    expect((await put(auth, credential)).json).toEqual(auth);
    expect((await put(auth)).json).toEqual(auth);
  });

  it("refuses an identity provider that does not exist, and those who may not", async () => {
    const idp = "6f0d2c1e-0a55-4d5c-9a5e-3c8f0a7b1d01";
    expect((await put({ idp_provider: idp, subdomain: "" })).json).toEqual([
      `idp_provider: there is no identity provider ${idp}; holdfast and local name the built-in accounts`,
    ]);
    const reader = await bench.keyFor(["identity-providers::read"]);
    expect((await get("/org/auth", reader)).status).toBe(200);
    expect((await put({ idp_provider: "local", subdomain: "" }, reader)).status).toBe(403);
  });
});

describe("PUT /domain/{domain}/config/{section}", () => {
  it("stores a section beside the other, and says that it is not applied", async () => {
    const put = (section: string, json: object, domain = DOMAIN) =>
      bench.call("PUT", `/domain/${domain}/config/${section}`, { json });
    const alert = { enabled: false, thresholds: [] };
    const answer = await put("alert", alert);
    expect([answer.status, answer.json, answer.headers.get("holdfast-warning")]).toEqual([
      200,
      alert,
      expect.stringContaining("alert of the domain is stored but not applied"),
    ]);
    await put("apigw", { gateway_node: "hub" });
    const config = { alert, apigw: { gateway_node: "hub" } };
    expect((await get(`/domain/${DOMAIN}`)).json).toEqual({ domain: DOMAIN, config });
    expect((await put("alert", alert, "other.example")).status).toBe(404);
    expect((await put("apigw", { gateway_node: 1 })).status).toBe(422);
  });
});

describe("GET /domain/{domain}", () => {
  it("knows the one domain, for those who may read it", async () => {
    const key = await bench.keyFor(["domains::read"], [`tgrn:tg::domains:domain/${DOMAIN}`]);
    expect((await get(`/domain/${DOMAIN}`, key)).json).toEqual({ domain: DOMAIN, config: {} });
    expect((await get("/domain/other.example", key)).status).toBe(403);
    expect((await get("/domain/other.example")).status).toBe(404);
    expect((await get(`/domain/${DOMAIN}`, await bench.keyFor(["nodes::read"]))).status).toBe(403);
  });
});

describe("GET /tags", () => {
  it("lists names and values of what the caller may read, each once", async () => {
    const created_at = 1_750_000_000;
    const one = await bench.fleet.add({ name: "one", tags: { site: "rome", Env: "prod" } });
    await bench.fleet.add({ name: "two", tags: { site: "berlin", secret: "x" } });
    await bench.fleet.add({ name: "three", tags: { site: "rome" } });
    await bench.fleet.services.clusters.create({ name: "pair" }, "test");
    await bench.fleet.services.clusters.setTag("pair.example.net", "site", "oslo", "test");
    expect((await get("/tags")).json).toEqual([
      { name: "Env", values: ["prod"], created_at },
      { name: "secret", values: ["x"], created_at },
      { name: "site", values: ["berlin", "oslo", "rome"], created_at },
    ]);
    expect((await get("/tags/site")).json).toEqual({ name: "site", values: ["berlin", "oslo", "rome"], created_at });
    const key = await bench.keyFor(["nodes::read"], [`tgrn:tg::nodes:node/${one.uid}`]);
    expect((await get("/tags", key)).json).toEqual([
      { name: "Env", values: ["prod"], created_at },
      { name: "site", values: ["rome"], created_at },
    ]);
    const clusters = await bench.keyFor(["nodes::read"], ["tgrn:tg::nodes:cluster/*"]);
    expect((await get("/tags", clusters)).json).toEqual([
      { name: "site", values: ["oslo"], created_at: (await bench.fleet.cluster("pair.example.net"))?.createdAt },
    ]);
    expect((await get("/tags/secret", key)).status).toBe(404);
    expect((await get("/tags/__proto__")).status).toBe(404);
  });

  it("counts what a node inherits of its cluster, its own first", async () => {
    await bench.fleet.services.clusters.create({ name: "pair" }, "test");
    const one = await bench.fleet.add({ name: "one", tags: { site: "rome" }, cluster: "pair.example.net" });
    await bench.fleet.add({ name: "two", tags: {} });
    await bench.fleet.services.clusters.setTags("pair.example.net", { site: "oslo", env: "prod" }, "test");
    const { createdAt: created_at } = one;
    const nodes = await bench.keyFor(["nodes::read"], ["tgrn:tg::nodes:node/*"]);
    expect((await get("/tags", nodes)).json).toEqual([
      { name: "env", values: ["prod"], created_at },
      { name: "site", values: ["rome"], created_at },
    ]);
    expect((await get("/tags/site")).json).toMatchObject({ values: ["oslo", "rome"] });
    const bare = await bench.keyFor(["nodes::read"], ["tgrn:tg::nodes:node/00000000-0000-4000-8000-000000000000"]);
    expect((await get("/tags/env", bare)).status).toBe(404);
  });

  it("is empty without any, and not for those who may read neither nodes nor clusters", async () => {
    expect((await get("/tags")).json).toEqual([]);
    expect((await get("/tags/site")).status).toBe(404);
    const key = await bench.keyFor(["nodes::manage", "domains::read"]);
    expect((await get("/tags", key)).status).toBe(403);
    expect(members((await get("/tags/site", key)).json)).toMatchObject({ details: { action: "nodes::read" } });
  });
});
