import { beforeEach, describe, expect, it } from "vitest";
import { ADMIN_KEY, ApiBench } from "../../../support/control-plane/api-bench.ts";

let bench: ApiBench;
let edge: { uid: string; name: string };
let gateway: { uid: string; name: string };

const T = 1_800_000_000;
const record = (minute: number, more: object = {}) => ({
  time: (T + minute * 60) * 1000,
  node: "gw",
  minRtt: 1.25,
  maxRtt: 3,
  meanRtt: 2,
  stdRtt: 0.5,
  numRtt: 3,
  ...more,
});
const hop = { hop: 1, ip: "192.0.2.1", fqdn: "r1.example", minRtt: 0.5, maxRtt: 1, meanRtt: 0.75, numRtt: 3 };

beforeEach(async () => {
  bench = await ApiBench.create();
  edge = await bench.fleet.add({ name: "edge" });
  gateway = await bench.fleet.add({ name: "gw" });
});

const ask = (uid: string, query: string, key?: string) =>
  bench.call("GET", `/v2/node/${uid}/plugin-logs/gateway-details${query}`, key === undefined ? {} : { key });
const all = `?startDate=${T}&endDate=${T + 86_400}`;

describe("gateway details", () => {
  it("are what the node told, in the order of time", async () => {
    await bench.gatewayDetails.add(edge, [record(1, { hops: [hop] }), record(0), record(0, { path: "lte" })]);
    const { status, json } = await ask(edge.uid, all);
    expect([status, json]).toEqual([
      200,
      [{ stats: [record(0), record(0, { path: "lte" }), record(1, { hops: [hop] })] }],
    ]);
  });

  it("of a gateway are its clients' records of it, under their names", async () => {
    const other = await bench.fleet.add({ name: "another" });
    await bench.gatewayDetails.add(edge, [record(0), record(1, { node: "elsewhere" })]);
    await bench.gatewayDetails.add(other, [record(0, { path: "lte" })]);
    await bench.gatewayDetails.add(gateway, [record(2, { node: "hub" })]);
    expect((await ask(gateway.uid, all)).json).toEqual([
      { stats: [record(0, { node: "another", path: "lte" }), record(0, { node: "edge" }), record(2, { node: "hub" })] },
    ]);
    expect((await ask(other.uid, all)).json).toEqual([{ stats: [record(0, { path: "lte" })] }]);
  });

  it("are of the asked time, both ends included", async () => {
    await bench.gatewayDetails.add(
      edge,
      [0, 1, 2, 3].map((minute) => record(minute)),
    );
    const { json } = await ask(edge.uid, `?startDate=${T + 60}&endDate=${T + 120}`);
    expect(json).toEqual([{ stats: [record(1), record(2)] }]);
    expect((await ask(edge.uid, `?startDate=${T + 61}&endDate=${T + 61}`)).json).toEqual([{ stats: [] }]);
  });

  it.each([
    ["", ["startDate: is missing", "endDate: is missing"]],
    ["?startDate=1", ["endDate"]],
    ["?endDate=1", ["startDate"]],
    ["?startDate=2&endDate=1", ["startDate: is after endDate"]],
    ["?startDate=yesterday&endDate=1", ["startDate"]],
    ["?startDate=-1&endDate=1", ["startDate: must be at least 0"]],
    ["?startDate=1.5&endDate=2", ["startDate"]],
    ["?startDate=1800000000000&endDate=1800000000001", ["startDate: must be at most", "endDate: must be at most"]],
    ["?startDate=1&startDate=2&endDate=3", ["startDate"]],
    ["?startDate=1&endDate=2&from=3", ["from"]],
  ])("refuses %s, naming what is wrong", async (query, lines) => {
    const { status, json } = await ask(edge.uid, query);
    expect(status).toBe(422);
    expect(json).toHaveLength(lines.length);
    const text = JSON.stringify(json);
    for (const line of lines) expect(text).toContain(line);
  });

  it("refuses a range that holds too much", async () => {
    await bench.gatewayDetails.add(edge, [record(0)]);
    await bench.fleet.store.query(
      `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 99999)
       INSERT INTO gateway_details SELECT node, name, peer, peer_uid, path, t + i, num_rtt, min_rtt, max_rtt, mean_rtt, std_rtt, hops
       FROM gateway_details, n`,
    );
    // Not held against the schema: that takes seconds.
    const path = `/v2/node/${edge.uid}/plugin-logs/gateway-details${all}`;
    const full = await bench.app.request(path, { headers: { authorization: ADMIN_KEY } });
    expect(full.status).toBe(200);
    await bench.gatewayDetails.add(edge, [record(0, { time: T * 1000 + 100_000 })]);
    const { status, json } = await ask(edge.uid, all);
    expect([status, json]).toEqual([422, ["endDate: the range holds more than 100000 records"]]);
  });

  it("are not of agents, of nobody, and not for everybody", async () => {
    const agent = await bench.fleet.add({ name: "laptop", type: "Agent" });
    expect((await ask(agent.uid, all)).json).toEqual([expect.stringMatching(/^agents have no /)]);
    expect((await ask("00000000-0000-4000-8000-000000000000", all)).status).toBe(404);
    const key = await bench.keyFor(["nodes::read"], [`tgrn:tg::nodes:node/${edge.uid}`]);
    expect((await ask(edge.uid, all, key)).status).toBe(200);
    expect((await ask(gateway.uid, all, key)).status).toBe(403);
  });
});
