import { beforeEach, describe, expect, it } from "vitest";
import { tgrn } from "../../../../src/controller/access/policies/permissions.ts";
import type { Policy } from "../../../../src/controller/access/policies/policy.ts";
import type { NodeRecord } from "../../../../src/controller/nodes/records.ts";
import { ApiBench, items, members } from "../../../support/control-plane/api-bench.ts";
import { eventRecord } from "../../../support/control-plane/fleet-stage.ts";

const inProd = { all: { eq: { "tg:node:tags:env": ["prod"] } } };
const READS = ["nodes::read", "events::read", "alerts::read", "audits::read:node", "audits::read:flows"];
const policy = (effect: "allow" | "deny", actions: string[], conditions?: Policy["conditions"]): Policy => ({
  name: `${effect}-${actions.length}`,
  statements: [{ effect, actions }],
  resources: ["*"],
  conditions,
});

let bench: ApiBench;
let prod: NodeRecord;
let dev: NodeRecord;
let key = "";

beforeEach(async () => {
  bench = await ApiBench.create();
  await bench.call("POST", "/cluster", { json: { name: "pair" } });
  prod = await bench.fleet.add({ name: "prod", tags: { env: "prod", site: "rome" }, cluster: "pair.example.net" });
  dev = await bench.fleet.add({ name: "dev", tags: { env: "dev", site: "oslo" }, cluster: "pair.example.net" });
  key = await bench.keyHolding([policy("allow", READS, inProd)]);
});

const get = async (path: string, as = key) => (await bench.call("GET", path, { key: as })).json;
const names = async (as = key) => items(await get("/node", as)).map(({ name }) => name);

describe("what a condition leaves out", () => {
  it("is in no list of nodes and clusters, and among no members", async () => {
    expect(await names()).toEqual(["prod"]);
    expect(items(await get("/node?projection[0]=name"))).toHaveLength(1);
    expect(await get("/node?cluster=pair.example.net")).toHaveLength(1);
    expect(await get("/cluster")).toEqual([]);
    await bench.call("PUT", "/cluster/pair.example.net/tag/env", { json: { value: "prod" } });
    expect(items(await get("/cluster"))).toMatchObject([{ members: [prod.uid] }]);
    expect(members(await get("/cluster/pair.example.net"))).toMatchObject({ members: [prod.uid] });
  });

  it("counts for no tag", async () => {
    expect(await get("/tags")).toMatchObject([
      { name: "env", values: ["prod"] },
      { name: "site", values: ["rome"] },
    ]);
    expect((await bench.call("GET", "/tags/site", { key })).json).toMatchObject({ name: "site", values: ["rome"] });
  });

  it("is in no list of events, audits and alerts", async () => {
    for (const node of [prod, dev]) {
      const { store, services } = bench.fleet;
      await store.events.add(eventRecord(node));
      await services.events.audit(store, node, "somebody did something");
      const event = { eventType: "Node Disconnect", level: "WARNING", message: "gone", details: {} } as const;
      await services.events.record(store, node, event);
    }
    for (const path of ["/v2/event", "/v2/audit", "/alert", "/v2/alert"]) {
      const text = JSON.stringify(await get(path));
      expect([path, text.includes(prod.uid), text.includes(dev.uid)]).toEqual([path, true, false]);
    }
    expect(await get(`/v2/event?nodeIDs=${dev.uid}`)).toEqual([]);
    const { headers } = await bench.call("GET", "/v2/event", { key });
    expect(headers.get("x-total-count")).toBe(String(items(await get("/v2/event")).length));
  });

  it("is refused by name in the words of a name that nobody has", async () => {
    const answers = [];
    for (const name of ["dev", "nobody"]) {
      const { status, text } = await bench.call("GET", `/node/by-fqdn/${name}.example.net`, { key });
      answers.push([status, text.replaceAll(name, "NAME")]);
    }
    expect(answers[0]).toEqual(answers[1]);
    expect(answers[0]?.[0]).toBe(403);
    expect((await bench.call("GET", "/node/by-fqdn/prod.example.net", { key })).status).toBe(200);
  });
});

describe("conditions", () => {
  it("see a change of tags at the next request", async () => {
    await bench.call("PUT", `/node/${dev.uid}/tag/env`, { json: { value: "prod" } });
    expect(await names()).toEqual(["dev", "prod"]);
    await bench.call("DELETE", `/node/${dev.uid}/tag/env`);
    expect(await names()).toEqual(["prod"]);
  });

  it("see the tags of a node's cluster below its own", async () => {
    const stage = await bench.keyHolding([policy("allow", READS, { all: { eq: { "tg:node:tags:ring": ["1"] } } })]);
    expect(await names(stage)).toEqual([]);
    await bench.call("PUT", "/cluster/pair.example.net/tag/ring", { json: { value: "1" } });
    await bench.call("PUT", "/cluster/pair.example.net/tag/env", { json: { value: "prod" } });
    expect(await names(stage)).toEqual(["dev", "prod"]);
    expect(await names()).toEqual(["prod"]);
    expect((await bench.call("GET", `/node/${dev.uid}`, { key: stage })).status).toBe(200);
  });

  it("of a deny take away what they meet", async () => {
    const all = await bench.keyHolding([policy("allow", READS), policy("deny", READS, inProd)]);
    expect(await names(all)).toEqual(["dev"]);
    expect((await bench.call("GET", `/node/${prod.uid}`, { key: all })).status).toBe(403);
    expect((await bench.call("GET", `/node/${dev.uid}`, { key: all })).status).toBe(200);
  });

  it("give no right over the organization, and none over what has no tags", async () => {
    const actions = ["nodes::manage", "nodes::cluster", "nodes::remote-activation", "permissions::read", "users::read"];
    const not = await bench.keyHolding([policy("allow", actions, { none: inProd.all })]);
    const asked = [
      ["GET", "/node/license?name=new"],
      ["POST", "/cluster"],
      ["GET", "/v2/agent-token"],
      ["GET", "/v2/policy"],
      ["GET", "/v2/policy/builtin-tg-admin"],
      ["GET", "/v2/service-user"],
      ["GET", "/v2/permission"],
    ] as const;
    for (const [method, path] of asked) {
      const { status } = await bench.call(method, path, {
        key: not,
        json: method === "POST" ? { name: "x" } : undefined,
      });
      expect([path, status]).toEqual([path, 403]);
    }
  });

  it("hold for the other end of a connector", async () => {
    const configure = await bench.keyHolding([
      { ...policy("allow", ["nodes::configure:connectors"]), resources: [tgrn.node(dev.uid)] },
      policy("allow", ["nodes::configure:connectors"], inProd),
    ]);
    const to = (node: string) => ({
      connectors: [
        {
          id: "6f0d2c1e-0a55-4d5c-9a5e-3c8f0a7b1d01",
          name: "w",
          port: 80,
          protocol: "tcp",
          node,
          service: "127.0.0.1:8",
        },
      ],
    });
    const put = (node: string) =>
      bench.call("PUT", `/node/${dev.uid}/config/connectors`, { key: configure, json: to(node) });
    expect((await put("prod")).status).toBe(200);
    const third = await bench.fleet.add({ name: "third", tags: {} });
    expect((await put("third")).json).toMatchObject({ code: "forbidden", details: { resource: tgrn.node("third") } });
    expect((await put("nobody")).json).toMatchObject({ code: "forbidden" });
    await bench.call("PUT", `/node/${third.uid}/tag/env`, { json: { value: "prod" } });
    expect((await put("third")).status).toBe(200);
  });

  it("hold for bundles, streams and terminals of nodes", async () => {
    const run = await bench.keyHolding([policy("allow", ["nodes::remote-execute"], inProd)]);
    const ask = async (method: string, path: string) => (await bench.call(method, path, { key: run })).status;
    for (const [node, isIn] of [
      [prod, true],
      [dev, false],
    ] as const) {
      const statuses = [
        await ask("POST", `/node/${node.uid}/bundle`),
        await ask("POST", `/node/${node.uid}/trigger/why?stream=1`),
        await ask("POST", `/node/${node.uid}/trigger/why?wait=1`),
        await ask("GET", `/node/${node.uid}/trigger/container-exec?container=a`),
      ];
      expect(statuses.map((status) => status === 403)).toEqual(Array.from({ length: 4 }, () => !isIn));
    }
    expect(bench.fleet.triggered.map(({ uid }) => uid)).not.toContain(dev.uid);
  });
});
