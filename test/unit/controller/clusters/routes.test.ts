import { beforeEach, describe, expect, it } from "vitest";
import { ApiBench, items, members } from "../../../support/control-plane/api-bench.ts";

let bench: ApiBench;

beforeEach(async () => {
  bench = await ApiBench.create();
});

describe("clusters", () => {
  it("are created, listed, shown and removed", async () => {
    const created = await bench.call("POST", "/cluster", { json: { name: "pair" } });
    expect(created.status).toBe(200);
    expect(created.json).toMatchObject({
      fqdn: "pair.example.net",
      tgrn: "tgrn:tg::nodes:cluster/pair.example.net",
      members: [],
    });
    expect((await bench.call("GET", "/cluster")).json).toEqual([created.json]);
    expect((await bench.call("GET", "/cluster/pair.example.net")).json).toEqual(created.json);
    expect((await bench.call("DELETE", "/cluster/pair.example.net")).json).toEqual({});
    expect((await bench.call("GET", "/cluster/pair.example.net")).status).toBe(404);
    expect((await bench.call("DELETE", "/cluster/pair.example.net")).status).toBe(404);
  });

  it.each([{}, { name: "UPPER" }, { name: "a", extra: 1 }, { name: 7 }])("are refused as %j", async (json) => {
    const answer = await bench.call("POST", "/cluster", { json });
    expect(answer.status).toBe(422);
    expect(await bench.fleet.services.clusters.all()).toEqual([]);
  });

  it("are created by the whole record with nothing set but its name", async () => {
    const device = { vendor: "", model: "", mac: "", lan: null, wan_type: "", wan: "" };
    const record = { name: "pair", tags: null, device, config: {} };
    expect((await bench.call("POST", "/cluster", { json: record })).json).toMatchObject({ name: "pair", tags: {} });
    for (const part of [{ tags: { a: "b" } }, { config: { network: {} } }]) {
      const { status, json } = await bench.call("POST", "/cluster", { json: { ...record, name: "other", ...part } });
      expect([status, json]).toEqual([422, [expect.stringMatching(/^(?:tags|config): must be empty: /)]]);
    }
  });

  it("have names of their own", async () => {
    await bench.call("POST", "/cluster", { json: { name: "pair" } });
    const again = await bench.call("POST", "/cluster", { json: { name: "pair" } });
    expect([again.status, again.json]).toEqual([422, [expect.stringMatching(/^name: .*pair/)]]);
  });

  it("are listed as far as the caller may read them", async () => {
    for (const name of ["one", "two"]) await bench.fleet.services.clusters.create({ name }, "test");
    const key = await bench.keyFor(["nodes::read"], ["tgrn:tg::nodes:cluster/two.example.net"]);
    expect(items((await bench.call("GET", "/cluster", { key })).json).map(({ name }) => name)).toEqual(["two"]);
    expect((await bench.call("GET", "/cluster/one.example.net", { key })).status).toBe(403);
    expect((await bench.call("POST", "/cluster", { key, json: { name: "x" } })).status).toBe(403);
  });

  it.each(["cluster", "node"] as const)("and nodes: the tags of a %s are replaced as a whole", async (kind) => {
    await bench.call("POST", "/cluster", { json: { name: "pair" } });
    const { uid } = await bench.fleet.add({ name: "one", tags: { site: "rome" } });
    await bench.fleet.forget();
    const path = kind === "node" ? `/node/${uid}` : "/cluster/pair.example.net";
    const put = (tags: unknown, key?: string) =>
      bench.call("PUT", `${path}/tags`, { json: { tags }, ...(key === undefined ? {} : { key }) });
    const many = Object.fromEntries(Array.from({ length: 50 }, (_, n) => [`t${n}`, "x"]));
    for (const tags of [{ b: "1", A: "B" }, many, {}]) {
      const answer = await put(tags);
      expect([answer.status, answer.json]).toMatchObject([200, { tags }]);
      expect(members((await bench.call("GET", path)).json)["tags"]).toEqual(tags);
    }
    for (const [tags, line] of [
      [{ a: "b c" }, /^tags\.a: /],
      [{ "a b": "c" }, /^tags\.a b: /],
      [{ a: 1 }, /^tags\.a: /],
      [{ ...many, more: "x" }, /^tags: must be at most 50$/],
      [undefined, /^tags: /],
    ] as const) {
      const answer = await put(tags);
      expect([answer.status, answer.json]).toEqual([422, [expect.stringMatching(line)]]);
    }
    expect((await put({}, await bench.keyFor(["nodes::read"]))).status).toBe(403);
    expect((await put(null)).json).toMatchObject({ tags: {} });
    const part = await put({ x: "y" }, await bench.keyFor(["nodes::tag"]));
    expect(members(part.json)["tags"]).toEqual({ x: "y" });
    expect(await bench.fleet.changes()).toHaveLength(4);
    expect((await bench.fleet.changes())[0]).toContain("replaced: b, A");
  });

  it("carry tags", async () => {
    await bench.fleet.services.clusters.create({ name: "pair" }, "test");
    const path = "/cluster/pair.example.net/tag/site";
    expect((await bench.call("PUT", path, { json: { value: "berlin" } })).json).toMatchObject({
      tags: { site: "berlin" },
    });
    expect((await bench.call("PUT", path, { json: { value: "two words" } })).status).toBe(422);
    expect((await bench.call("PUT", path, { json: {} })).status).toBe(422);
    expect((await bench.call("DELETE", path)).json).toEqual({});
    expect((await bench.call("GET", "/cluster/pair.example.net")).json).toMatchObject({ tags: {} });
    expect((await bench.call("DELETE", path)).status).toBe(404);
    expect((await bench.call("PUT", "/cluster/no.example.net/tag/a", { json: { value: "b" } })).status).toBe(404);
  });
});

describe("what a cluster tells", () => {
  it("is only the part written to a caller who may not read it, and never a secret", async () => {
    await bench.call("POST", "/cluster", { json: { name: "pair" } });
    const record = await bench.fleet.cluster("pair.example.net");
    if (record === undefined) throw new Error("no cluster");
    const config = { network: { tunnels: [{ name: "a", type: "ipsec", psk: "hunter2" }] } };
    await bench.fleet.store.clusters.setConfig(record.fqdn, config);
    const key = await bench.keyFor(["nodes::tag"]);
    const path = "/cluster/pair.example.net/tag/site";
    const put = await bench.call("PUT", path, { key, json: { value: "rome" } });
    expect(put.json).toEqual({ fqdn: record.fqdn, tags: { site: "rome" } });
    expect((await bench.call("DELETE", path, { key })).json).toEqual({});
    const shown = await bench.call("GET", "/cluster/pair.example.net");
    expect(shown.json).toMatchObject({ config: { network: { tunnels: [{ name: "a", type: "ipsec", psk: "" }] } } });
  });
});

describe("a tag of a cluster", () => {
  it.each(["__proto__", "constructor", "prototype"])("is not called %s, which no node would take", async (name) => {
    await bench.call("POST", "/cluster", { json: { name: "pair" } });
    const answer = await bench.call("PUT", `/cluster/pair.example.net/tag/${name}`, { json: { value: "x" } });
    expect([answer.status, answer.json]).toEqual([422, [`tagName: the key ${name} is not allowed`]]);
    expect((await bench.fleet.cluster("pair.example.net"))?.tags).toEqual({});
  });
});

describe("the configured active member", () => {
  const fqdn = "pair.example.net";
  let a: string;
  let b: string;
  const clusterOf = async (uid: string) => (await bench.fleet.node(uid))?.config["cluster"];
  const promote = (uid: string, key?: string) =>
    bench.call("PUT", `/cluster/${fqdn}/active/${uid}`, {
      body: "null",
      ...(key === undefined ? {} : { key }),
    });

  beforeEach(async () => {
    await bench.fleet.services.clusters.create({ name: "pair" }, "test");
    a = (await bench.fleet.add({ name: "node-a", config: { cluster: { enabled: true, host: "192.0.2.1" } } })).uid;
    b = (await bench.fleet.add({ name: "node-b", config: {} })).uid;
    for (const uid of [a, b]) await bench.call("PUT", `/node/${uid}`, { json: { cluster: fqdn } });
  });

  it("is one member alone, and each change of it is counted on all", async () => {
    expect(await promote(a)).toMatchObject({ status: 200, json: { fqdn } });
    const role = { versionCounter: 1, updateTime: expect.any(Number) as number };
    expect(await clusterOf(a)).toEqual({ enabled: true, host: "192.0.2.1", master: true, ...role });
    expect(await clusterOf(b)).toEqual({ master: false, ...role });
    const first = [await clusterOf(a), await clusterOf(b)];
    expect((await promote(a)).status).toBe(200);
    expect([await clusterOf(a), await clusterOf(b)]).toEqual(first);
    await promote(b);
    expect(await clusterOf(a)).toMatchObject({ master: false, versionCounter: 2 });
    expect(await clusterOf(b)).toMatchObject({ master: true, versionCounter: 2 });
  });

  it("must be a member of a cluster that exists", async () => {
    const stranger = (await bench.fleet.add({ name: "node-c", config: {} })).uid;
    const answer = await promote(stranger);
    const unknown = "00000000-0000-4000-8000-000000000000";
    // A right to the cluster is none to read other nodes, nor to learn which there are.
    const key = await bench.keyFor(["nodes::cluster"], [`tgrn:tg::nodes:cluster/${fqdn}`]);
    for (const [uid, answered] of [
      [stranger, answer],
      [stranger, await promote(stranger, key)],
      [unknown, await promote(unknown, key)],
    ] as const) {
      const line = `nodeID: node ${uid} is not a member of ${fqdn}; put it into the cluster first`;
      expect([answered.status, answered.json]).toEqual([422, [line]]);
    }
    expect((await bench.call("PUT", `/cluster/no.example.net/active/${a}`)).status).toBe(404);
    expect([await clusterOf(b), await clusterOf(stranger)]).toEqual([undefined, undefined]);
  });

  it("is promoted by who may change the cluster", async () => {
    const key = await bench.keyFor(["nodes::read", "nodes::manage", "nodes::configure:cluster"]);
    expect((await promote(a, key)).json).toMatchObject({ code: "forbidden", details: { action: "nodes::cluster" } });
    expect(await clusterOf(b)).toBeUndefined();
    expect((await promote(a, await bench.keyFor(["nodes::cluster"]))).json).toEqual({ fqdn });
  });

  it("is none any more after it left, with its heartbeat, or after the cluster is gone", async () => {
    await promote(a);
    await bench.call("PUT", `/node/${a}`, { json: { cluster: null } });
    expect(await clusterOf(a)).toBeUndefined();
    await promote(b);
    await bench.call("DELETE", `/cluster/${fqdn}`);
    expect(await clusterOf(b)).toBeUndefined();
  });
});
