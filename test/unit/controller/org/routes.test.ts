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
    const one = await bench.fleet.add({ name: "one", tags: { site: "rome", Env: "prod" } });
    await bench.fleet.add({ name: "two", tags: { site: "berlin", secret: "x" } });
    await bench.fleet.add({ name: "three", tags: { site: "rome" } });
    await bench.fleet.services.clusters.create({ name: "pair" }, "test");
    await bench.fleet.services.clusters.setTag("pair.example.net", "site", "oslo", "test");
    expect((await get("/tags")).json).toEqual([
      { name: "Env", values: ["prod"] },
      { name: "secret", values: ["x"] },
      { name: "site", values: ["berlin", "oslo", "rome"] },
    ]);
    expect((await get("/tags/site")).json).toEqual({ name: "site", values: ["berlin", "oslo", "rome"] });
    const key = await bench.keyFor(["nodes::read"], [`tgrn:tg::nodes:node/${one.uid}`]);
    expect((await get("/tags", key)).json).toEqual([
      { name: "Env", values: ["prod"] },
      { name: "site", values: ["rome"] },
    ]);
    const clusters = await bench.keyFor(["nodes::read"], ["tgrn:tg::nodes:cluster/*"]);
    expect((await get("/tags", clusters)).json).toEqual([{ name: "site", values: ["oslo"] }]);
    expect((await get("/tags/secret", key)).status).toBe(404);
    expect((await get("/tags/__proto__")).status).toBe(404);
  });

  it("is empty without any, and not for those who may read neither nodes nor clusters", async () => {
    expect((await get("/tags")).json).toEqual([]);
    expect((await get("/tags/site")).status).toBe(404);
    const key = await bench.keyFor(["nodes::manage", "domains::read"]);
    expect((await get("/tags", key)).status).toBe(403);
    expect(members((await get("/tags/site", key)).json)).toMatchObject({ details: { action: "nodes::read" } });
  });
});
