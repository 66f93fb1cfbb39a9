import { beforeEach, describe, expect, it } from "vitest";
import { tgrn } from "../../../../src/controller/access/policies/permissions.ts";
import { ApiBench, items } from "../../../support/control-plane/api-bench.ts";
import { flowAt } from "../../../support/overlay/flow-record.ts";
import type { NodeRecord } from "../../../../src/controller/nodes/records.ts";

const HOUR = 3_600_000;
let bench: ApiBench;
let one: NodeRecord;
let two: NodeRecord;
let now = 0;

beforeEach(async () => {
  bench = await ApiBench.create();
  one = await bench.fleet.add({ name: "one", tags: { site: "berlin" } });
  two = await bench.fleet.add({ name: "two", tags: { site: "paris" } });
  now = bench.deps.clock.now();
  await bench.flows.add(one.uid, [flowAt(now - 3 * HOUR, { destPort: 1 }), flowAt(now - HOUR, { destPort: 2 })]);
  await bench.flows.add(two.uid, [
    flowAt(now - HOUR / 2, { destPort: 3, flags: "65536", meta: { connector: "x", reason: "source-not-permitted" } }),
  ]);
});

const portsOf = async (query: string, key?: string) => {
  const answer = await bench.call("GET", `/v2/flow${query}`, key === undefined ? {} : { key });
  expect(answer.status).toBe(200);
  return items(answer.json).map(({ destPort }) => destPort);
};

describe("GET /v2/flow", () => {
  it("shows the last two hours, newest first, with whose each is", async () => {
    const answer = await bench.call("GET", "/v2/flow");
    expect(answer.headers.get("x-total-count")).toBe("2");
    expect(answer.json).toMatchObject([
      { nodeId: two.uid, destPort: 3, flags: "65536", meta: { reason: "source-not-permitted" } },
      { nodeId: one.uid, destPort: 2, sourceNode: "local", protocol: "TCP" },
    ]);
  });

  it("takes every filter, alone and together", async () => {
    const ago = (hours: number) => new Date(now - hours * HOUR).toISOString();
    expect(await portsOf(`?sTime=${ago(4)}&sort=endTime:asc`)).toEqual([1, 2, 3]);
    expect(await portsOf(`?eTime=${ago(2)}`)).toEqual([1]);
    expect(await portsOf(`?nodeIDs=${one.uid}`)).toEqual([2]);
    expect(await portsOf("?protocols=UDP,ICMP")).toEqual([]);
    expect(await portsOf("?source=192.0.2.0/24&dest=10.0.0.5")).toEqual([3, 2]);
    expect(await portsOf("?source=198.51.100.1")).toEqual([]);
    expect(await portsOf("?destPort=3&sourcePort=0")).toEqual([3]);
    expect(await portsOf("?connector=x")).toEqual([3]);
    expect(await portsOf("?reasons=source-not-permitted,loop")).toEqual([3]);
    expect(await portsOf("?defunct=true")).toEqual([3]);
    expect(await portsOf("?defunct=false")).toEqual([2]);
    expect(await portsOf("?limit=1&page=2")).toEqual([2]);
    expect(await portsOf("?limit=10000&page=2")).toEqual([]);
  });

  it("compares by operators, alone and together", async () => {
    expect(await portsOf("?destPort=3&destPortOp=lt")).toEqual([2]);
    expect(await portsOf("?destPort=0")).toEqual([3, 2]);
    expect(await portsOf("?destPort=0&destPortOp=eq")).toEqual([]);
    expect(await portsOf("?sourcePort=40000&sourcePortOp=ne")).toEqual([]);
    expect(await portsOf("?sourcePort=0&sourcePortOp=gt&destPort=2&destPortOp=lte")).toEqual([2]);
    expect(await portsOf("?source=192.0.2.0/24&sourceOp=ne")).toEqual([]);
    expect(await portsOf("?dest=10.0.0.4&destOp=gt&connector=x")).toEqual([3]);
    expect(await portsOf("?protocols=UDP,ICMP&protocolsOp=ne")).toEqual([3, 2]);
    expect(await portsOf("?protocols=UDP,TCP&protocolsOp=ne")).toEqual([]);
    expect(await portsOf("?protocols=UDP,TCP&protocolsOp=eq")).toEqual([3, 2]);
  });

  it("compares the second in which a flow ended, and without an operator its time", async () => {
    const at = Math.floor((now - HOUR) / 1000) * 1000;
    await bench.flows.add(one.uid, [flowAt(at + 100, { destPort: 4 }), flowAt(at + 900, { destPort: 5 })]);
    const [from, time] = [at - HOUR, at + 500].map((moment) => new Date(moment).toISOString());
    for (const [op, ports] of [
      ["", [4]],
      ["&eTimeOp=lte", [4, 5]],
      ["&eTimeOp=lt", []],
      ["&eTimeOp=eq", [4, 5]],
      ["&eTimeOp=ne", [3]],
      ["&eTimeOp=gt", [3]],
      ["&eTimeOp=gte", [4, 5, 3]],
    ] as const) {
      const found = await portsOf(`?sort=endTime:asc&sTime=${from}&eTime=${time}${op}`);
      expect([op, found.filter((port) => port !== 2)]).toEqual([op, ports]);
    }
    expect(await portsOf(`?sort=endTime:asc&eTime=${time}&eTimeOp=eq&destPort=2&destPortOp=ne`)).toEqual([4, 5]);
  });

  it.each([
    "sTime=2026-01-02&eTime=2026-01-01",
    "sTime=yesterday",
    "source=10.0.0.0/33",
    "source=example.net",
    "dest=fe80::1%25eth0",
    "sourcePort=65536",
    "limit=10001",
    "limit=0",
    "page=0",
    "protocols=GRE",
    "defunct=maybe",
    "sort=bytes",
    "nodeIDs=one",
    "port=80",
    "nodeIDsOp=eq",
    "sourceOp=above&source=10.0.0.1",
    "protocols=TCP&protocolsOp=gt",
    "sTime=9999-01-01&eTime=2026-01-01&eTimeOp=gt",
  ])("refuses %s", async (query) => {
    expect((await bench.call("GET", `/v2/flow?${query}`)).status).toBe(422);
  });

  it.each(["eTime", "protocols", "source", "dest", "sourcePort", "destPort"])("refuses %sOp alone", async (name) => {
    const { status, json } = await bench.call("GET", `/v2/flow?${name}Op=ne`);
    expect([status, json]).toEqual([422, [`${name}Op: needs ${name}`]]);
  });

  it("shows a caller only the nodes that it may read the events of", async () => {
    const key = await bench.keyFor(["events::read"], [tgrn.node(two.uid)]);
    expect(await portsOf("", key)).toEqual([3]);
    expect(await portsOf(`?nodeIDs=${one.uid}`, key)).toEqual([]);
    expect(await portsOf("?destPort=0&destPortOp=gt&protocols=ICMP&protocolsOp=ne", key)).toEqual([3]);
    const { status } = await bench.call("GET", "/v2/flow?destPort=0&destPortOp=gt", {
      key: await bench.keyFor(["audits::read:flows"]),
    });
    expect(status).toBe(403);
  });
});

describe.each(["/v2/audit/flow-logs", "/audit/tail/flow_logs"])("GET %s", (path) => {
  const found = async (query: string) => {
    const answer = await bench.call("GET", `${path}?${query}`);
    expect([answer.status, answer.text]).toEqual([200, expect.any(String)]);
    return items(answer.json).map(({ destPort }) => destPort);
  };

  it("compares by operators, alone and together", async () => {
    expect(await found("")).toEqual([3, 2]);
    expect(await found("dstPort=3")).toEqual([3]);
    expect(await found("dstPort=3&dstPortOp=lt")).toEqual([2]);
    expect(await found("dstPort=0")).toEqual([3, 2]);
    expect(await found("dstPort=0&dstPortOp=eq")).toEqual([]);
    expect(await found("srcPort=40000&srcPortOp=ne")).toEqual([]);
    expect(await found("srcPort=0&srcPortOp=gt&dstPort=2&dstPortOp=lte")).toEqual([2]);
    expect(await found("srcIp=192.0.2.0/24&srcIpOp=ne")).toEqual([]);
    expect(await found("dstIp=10.0.0.4&dstIpOp=gt")).toEqual([3, 2]);
    expect(await found("protocol=UDP&protocolOp=ne")).toEqual([3, 2]);
    expect(await found("protocol=TCP&protocolOp=ne")).toEqual([]);
    expect(await found("protocol=TCP&protocolOp=eq")).toEqual([3, 2]);
  });

  it("compares the second in which a flow ended", async () => {
    const second = Math.floor((now - HOUR) / 1000);
    for (const [op, ports] of [
      ["", [2]],
      ["&eTimeOp=lte", [2]],
      ["&eTimeOp=lt", []],
      ["&eTimeOp=eq", [2]],
      ["&eTimeOp=ne", [3]],
      ["&eTimeOp=gt", [3]],
      ["&eTimeOp=gte", [3, 2]],
    ] as const) {
      expect([op, await found(`sTime=${second - 3600}&eTime=${second}${op}`)]).toEqual([op, ports]);
    }
    expect(await found(`eTime=${second}&eTimeOp=eq`)).toEqual([2]);
    expect(await found(`eTime=${second}&eTimeOp=gte`)).toEqual([3, 2]);
    const early = Math.floor((now - 4 * HOUR) / 1000);
    expect(await found(`eTime=${early}&eTimeOp=gt`)).toEqual([3, 2, 1]);
    expect(await found(`sTime=${second}&eTime=${early}&eTimeOp=gt`)).toEqual([3, 2]);
    expect(await found(`sTime=${early}&eTime=${second}&eTimeOp=lt`)).toEqual([1]);
    expect(await found(`eTime=${second + 8 * 3600}&eTimeOp=gt`)).toEqual([]);
  });

  it("takes names of nodes, bits and the other direction", async () => {
    await bench.flows.add(one.uid, [
      flowAt(now - 1000, { sourceNode: "one", destNode: "two", destPort: 9, tcpFlags: "18", flags: "262144" }),
    ]);
    expect(await found("srcNode=one")).toEqual([9]);
    expect(await found("srcNode=two")).toEqual([]);
    expect(await found("srcNode=two&reverse=true")).toEqual([9]);
    expect(await found("srcNode=two&reverse=false")).toEqual([]);
    expect(await found("dstNode=two&tcpFlags=2")).toEqual([9]);
    expect(await found("tcpFlags=4")).toEqual([]);
    expect(await found("flags=65536")).toEqual([3]);
    expect(await found("flags=0")).toEqual([9, 3, 2]);
  });

  it.each([
    ["eTimeOp=lt", "eTimeOp: needs eTime"],
    ["protocolOp=ne", "protocolOp: needs protocol"],
    ["srcIpOp=eq", "srcIpOp: needs srcIp"],
    ["dstIpOp=eq", "dstIpOp: needs dstIp"],
    ["srcPortOp=gt&dstPort=1", "srcPortOp: needs srcPort"],
    ["dstPortOp=gt", "dstPortOp: needs dstPort"],
    ["dstPort=1&dstPortOp=above", /^dstPortOp: /],
    ["protocol=TCP&protocolOp=gt", /^protocolOp: /],
    ["tcpFlags=SYN", /^tcpFlags: /],
    ["flags=4294967296", /^flags: /],
    ["reverse=maybe", /^reverse: /],
    ["srcNode=a&srcNodeOp=eq", /^query: unknown parameter 'srcNodeOp'/],
    ["sTime=2&eTime=1", "sTime: is after eTime"],
    ["sTime=253402300799&eTime=1&eTimeOp=gt", "sTime: is after now"],
  ])("refuses %s", async (query, line) => {
    const answer = await bench.call("GET", `${path}?${query}`);
    const expected: unknown = typeof line === "string" ? line : expect.stringMatching(line);
    expect([answer.status, answer.json]).toEqual([422, [expected]]);
  });

  it("shows a caller only the records of nodes that it may read, whatever the filter names", async () => {
    const key = await bench.keyFor(["audits::read:flows"], [tgrn.node(two.uid)]);
    const answer = await bench.call("GET", `${path}?srcNode=local&dstPort=0&dstPortOp=gt&reverse=true`, { key });
    expect(items(answer.json).map(({ nodeId }) => nodeId)).toEqual([two.uid]);
  });
});

describe("GET /stats/realtime/usage", () => {
  const totalOf = async (query: string, key?: string) => {
    const answer = await bench.call("GET", `/stats/realtime/usage${query}`, key === undefined ? {} : { key });
    const sum = (member: string) => items(answer.json).reduce((total, bucket) => total + Number(bucket[member]), 0);
    return [sum("bytes"), sum("count")];
  };

  it("counts flows and their bytes, by tags and by what the caller may read", async () => {
    expect(await totalOf("")).toEqual([3000, 3]);
    expect(await totalOf("?filters=site:berlin")).toEqual([2000, 2]);
    expect(await totalOf("?filters=site:rome")).toEqual([0, 0]);
    expect(await totalOf("?relative_start=-2 hours&intervalInMinutes=1")).toEqual([2000, 2]);
    expect(await totalOf("", await bench.keyFor(["nodes::read"], [tgrn.node(two.uid)]))).toEqual([1000, 1]);
  });

  it("counts for nodes with the tags of their cluster, their own first", async () => {
    await bench.fleet.services.clusters.create({ name: "pair" }, "test");
    await bench.fleet.services.clusters.setTags("pair.example.net", { site: "oslo", env: "prod" }, "test");
    for (const { uid } of [one, two]) {
      await bench.call("PUT", `/node/${uid}`, { json: { cluster: "pair.example.net" } });
    }
    expect(await totalOf("?filters=env:prod")).toEqual([3000, 3]);
    expect(await totalOf("?filters=env:prod,site:paris")).toEqual([1000, 1]);
    expect(await totalOf("?filters=site:oslo")).toEqual([0, 0]);
    expect(await totalOf("?filters=env:prod", await bench.keyFor(["nodes::read"], [tgrn.node(two.uid)]))).toEqual([
      1000, 1,
    ]);
  });

  it("counts for named nodes, which exist and which the caller may read", async () => {
    expect(await totalOf(`?nodeIDs=${one.uid}`)).toEqual([2000, 2]);
    expect(await totalOf(`?nodeIDs=${one.uid},${two.uid}`)).toEqual([3000, 3]);
    expect(await totalOf(`?nodeIDs[]=${one.uid}&nodeIDs[]=${two.uid}&filters=site:berlin`)).toEqual([2000, 2]);
    expect(await totalOf(`?nodeIDs=${two.uid}&filters=site:berlin`)).toEqual([0, 0]);
    const stranger = "00000000-0000-4000-8000-000000000000";
    const unknown = await bench.call("GET", `/stats/realtime/usage?nodeIDs=${one.uid},${stranger}`);
    expect([unknown.status, unknown.json]).toEqual([422, [`nodeIDs.1: there is no node ${stranger}`]]);
    const key = await bench.keyFor(["nodes::read"], [tgrn.node(two.uid)]);
    expect(await totalOf(`?nodeIDs=${two.uid}`, key)).toEqual([1000, 1]);
    for (const uid of [one.uid, stranger]) {
      const refused = await bench.call("GET", `/stats/realtime/usage?nodeIDs=${uid}`, { key });
      expect([refused.status, refused.json]).toMatchObject([403, { details: { resource: tgrn.node(uid) } }]);
    }
  });

  it("counts a flow between two nodes once, and for either of them", async () => {
    const three = await bench.fleet.add({ name: "three", tags: { site: "oslo" } });
    const ends = { sourceNode: three.name, destNode: two.name };
    const ended = Date.now() - 60_000;
    await bench.flows.add(three.uid, [flowAt(ended, ends)]);
    await bench.flows.add(two.uid, [flowAt(ended, ends)]);
    expect(await totalOf("")).toEqual([4000, 4]);
    expect(await totalOf("", await bench.keyFor(["nodes::read"], [tgrn.node(two.uid)]))).toEqual([2000, 2]);
    expect(await totalOf("?filters=site:oslo")).toEqual([1000, 1]);
    const both = await bench.keyFor(["nodes::read"], [tgrn.node(two.uid), tgrn.node(three.uid)]);
    expect(await totalOf("", both)).toEqual([2000, 2]);
    // Whoever is not known cannot have told of it.
    await bench.flows.add(two.uid, [flowAt(ended, { ...ends, sourceNode: "stranger" })]);
    expect(await totalOf("")).toEqual([5000, 5]);
  });
});
