import { beforeEach, describe, expect, it } from "vitest";
import { ApiBench, items } from "../../../support/control-plane/api-bench.ts";
import { eventRecord } from "../../../support/control-plane/fleet-stage.ts";
import type { NodeRecord } from "../../../../src/controller/nodes/records.ts";

let bench: ApiBench;
let one: NodeRecord;
let two: NodeRecord;

beforeEach(async () => {
  bench = await ApiBench.create();
  one = await bench.fleet.add({ name: "one" });
  two = await bench.fleet.add({ name: "two" });
  const at = Date.parse("2026-01-01T00:00:00Z") / 1000;
  const events = [
    eventRecord(one, { uid: "e1", timestamp: at, level: "INFO" }),
    eventRecord(two, {
      uid: "e2",
      timestamp: at + 60,
      level: "ERROR",
      eventType: "DNS Resolution",
      message: "DNS down",
    }),
    eventRecord(one, { uid: "e3", timestamp: at + 120, level: "WARNING", eventType: "Node Disconnect" }),
    eventRecord(one, { uid: "e4", timestamp: at + 180, level: "CRITICAL", subject: "Upgrade" }),
  ];
  for (const event of events) await bench.fleet.store.events.add(event);
});

const found = async (query: string, key?: string): Promise<unknown[]> => {
  const answer = await bench.call("GET", `/v2/event${query}`, key === undefined ? {} : { key });
  expect(answer.status).toBe(200);
  return items(answer.json).map(({ uid }) => uid);
};

describe("GET /v2/event", () => {
  it("lists the newest first", async () => {
    expect(await found("")).toEqual(["e4", "e3", "e2", "e1"]);
  });

  it.each([
    ["?sTime=2026-01-01T00:01:00Z&eTime=2026-01-01T00:02:00Z", ["e3", "e2"]],
    ["?sTime=2026-01-01T01:01:00%2B01:00", ["e4", "e3", "e2"]],
    ["?eTime=2026-01-01", ["e1"]],
    ["?eventTypes=DNS%20Resolution,Node%20Disconnect", ["e3", "e2"]],
    ["?eventTypes=DNS%20Resolution&eventTypes=Node%20Disconnect", ["e3", "e2"]],
    ["?levels=ERROR,CRITICAL", ["e4", "e2"]],
    ["?itemTypes=Upgrade", ["e4"]],
    ["?q=DNS", ["e2"]],
    ["?sort=timestamp:asc", ["e1", "e2", "e3", "e4"]],
    ["?sort=level:desc", ["e4", "e2", "e3", "e1"]],
    ["?limit=2&page=2", ["e2", "e1"]],
    ["?limit=2&page=3", []],
  ])("answers %s", async (query, uids) => {
    expect(await found(query)).toEqual(uids);
  });

  it("takes nodes, and tells the total of all pages", async () => {
    expect(await found(`?nodeIDs=${two.uid}`)).toEqual(["e2"]);
    const { headers } = await bench.call("GET", "/v2/event?limit=1");
    expect(headers.get("x-total-count")).toBe("4");
  });

  it("holds only what the caller may read", async () => {
    const key = await bench.keyFor(["events::read"], [`tgrn:tg::nodes:node/${two.uid}`]);
    expect(await found("", key)).toEqual(["e2"]);
    expect(await found(`?nodeIDs=${one.uid},${two.uid}`, key)).toEqual(["e2"]);
    expect(await found(`?nodeIDs=${one.uid}`, key)).toEqual([]);
    expect((await bench.call("GET", `/v2/event/${one.uid}`, { key })).status).toBe(403);
  });

  it.each([
    "?limit=0",
    "?limit=1001",
    "?limit=ten",
    "?limit=1&limit=2",
    "?page=0",
    "?sTime=yesterday",
    "?sTime=2026-01-01T00:00:00",
    "?sTime=2026-01-02&eTime=2026-01-01",
    "?levels=LOUD",
    "?itemTypes=Thing",
    "?sort=message:asc",
    "?nodeIDs=x",
  ])("refuses %s by name", async (query) => {
    const answer = await bench.call("GET", `/v2/event${query}`);
    expect(answer.status).toBe(422);
    expect(answer.json).toEqual([
      expect.stringMatching(/^(limit|page|sTime|levels\.0|itemTypes\.0|sort|nodeIDs\.0): /),
    ]);
  });
});

describe("events of one node", () => {
  it("are listed alone, and stay readable after the node is gone", async () => {
    const list = async () => items((await bench.call("GET", `/v2/event/${one.uid}?sort=timestamp:asc`)).json);
    expect((await list()).map(({ uid }) => uid)).toEqual(["e1", "e3", "e4"]);
    await bench.fleet.store.nodes.remove(one.uid);
    expect(await list()).toHaveLength(3);
    expect((await bench.call("GET", "/v2/event/00000000-0000-4000-8000-000000000000")).status).toBe(404);
  });
});

describe("the older form", () => {
  it("answers events of a node, newest first, under the old names", async () => {
    const answer = await bench.call("GET", `/alert/${one.uid}?limit=1`);
    expect(answer.json).toEqual([
      {
        uid: "e4",
        type: "Node Connect",
        alert_message: "Node connected from IP address 192.0.2.7",
        node_id: one.uid,
        node: "one",
        timestamp: Date.parse("2026-01-01T00:03:00Z") / 1000,
      },
    ]);
    expect(answer.headers.get("deprecation")).toBeNull();
    expect((await bench.call("GET", "/alert/00000000-0000-4000-8000-000000000000")).status).toBe(404);
  });

  it("says of the organization's list that it is deprecated", async () => {
    const answer = await bench.call("GET", "/alert");
    expect(items(answer.json)).toHaveLength(4);
    expect(answer.headers.get("deprecation")).toMatch(/^@\d+$/);
    expect(answer.headers.get("link")).toContain("/v2/event");
    const key = await bench.keyFor(["alerts::read"], [`tgrn:tg::nodes:node/${two.uid}`]);
    expect(items((await bench.call("GET", "/alert", { key })).json)).toHaveLength(1);
    expect((await bench.call("GET", "/alert?limit=9999")).status).toBe(422);
  });

  it("begins the organization's list at a timestamp", async () => {
    const from = Date.parse("2026-01-01T00:02:00Z") / 1000;
    const answer = await bench.call("GET", `/alert?timestamp=${from}`);
    expect(items(answer.json).map(({ uid }) => uid)).toEqual(["e4", "e3"]);
    expect((await bench.call("GET", "/alert?timestamp=yesterday")).status).toBe(422);
  });
});

describe("audits", () => {
  beforeEach(async () => {
    const audit = (node: NodeRecord, timestamp: number, value: string) => ({
      nodeId: node.uid,
      fqdn: node.fqdn,
      category: "Node Action",
      value,
      timestamp,
      origin: "control-plane" as const,
    });
    await bench.fleet.store.audits.add(audit(two, 100, "bob invoked Node Restart"));
    await bench.fleet.store.audits.add(audit(one, 200, "ann invoked Ping"));
  });

  const values = async (path: string, key?: string): Promise<unknown[]> => {
    const answer = await bench.call("GET", path, key === undefined ? {} : { key });
    expect(answer.status).toBe(200);
    return items(answer.json).map(({ value }) => value);
  };

  it("are listed with what becomes of them, in pages", async () => {
    const answer = await bench.call("GET", "/v2/audit?limit=1");
    expect(answer.headers.get("x-total-count")).toBe("2");
    expect(answer.json).toEqual([
      {
        uid: one.uid,
        fqdn: one.fqdn,
        category: "Node Action",
        value: "ann invoked Ping",
        timestamp: 200,
        expires: 200 + 30 * 24 * 3600,
        org: bench.deps.org,
        origin: "control-plane",
      },
    ]);
    expect(await values("/v2/audit?limit=1&page=2")).toEqual(["bob invoked Node Restart"]);
    expect(await values("/v2/audit?eTime=1970-01-01T00:02:00Z")).toEqual(["bob invoked Node Restart"]);
  });

  it("are those of the nodes that the caller may read", async () => {
    const key = await bench.keyFor(["events::read"], [`tgrn:tg::nodes:node/${two.uid}`]);
    expect(await values("/v2/audit", key)).toEqual(["bob invoked Node Restart"]);
    expect(await values(`/v2/audit/${two.uid}`, key)).toEqual(["bob invoked Node Restart"]);
    expect((await bench.call("GET", `/v2/audit/${one.uid}`, { key })).status).toBe(403);
    expect((await bench.call("GET", "/v2/audit/00000000-0000-4000-8000-000000000000")).status).toBe(404);
  });

  it("refuse what they do not know", async () => {
    for (const query of ["sTime=yesterday", "limit=0", "nodeId=x", "sTime=2026-01-02&eTime=2026-01-01"]) {
      for (const path of ["/v2/audit", `/v2/audit/${one.uid}`])
        expect((await bench.call("GET", `${path}?${query}`)).status, query).toBe(422);
    }
  });
});

describe("alerts", () => {
  it("refuse parameters that they do not know, in every list", async () => {
    for (const path of ["/alert", `/alert/${one.uid}`, "/v2/alert", `/v2/alert/${one.uid}`]) {
      const { status, json } = await bench.call("GET", `${path}?levels=ERROR`);
      expect([status, json], path).toEqual([422, [expect.stringMatching(/^query: unknown parameter 'levels'; /)]]);
    }
  });

  beforeEach(async () => {
    for (const node of [one, two]) {
      await bench.fleet.store.alerts.open({
        uid: `a-${node.name}`,
        eventType: "Node Disconnect",
        message: "Node disconnected",
        nodeId: node.uid,
        nodeName: node.name,
        timestamp: Date.now() / 1000,
      });
    }
  });

  it("are listed as far as the caller may read them", async () => {
    expect(items((await bench.call("GET", "/v2/alert")).json)).toHaveLength(2);
    expect(items((await bench.call("GET", `/v2/alert/${one.uid}`)).json)).toMatchObject([{ uid: "a-one" }]);
    const key = await bench.keyFor(["alerts::read"], [`tgrn:tg::nodes:node/${two.uid}`]);
    expect((await bench.call("GET", "/v2/alert", { key })).json).toMatchObject([{ uid: "a-two" }]);
    expect((await bench.call("GET", "/v2/alert/00000000-0000-4000-8000-000000000000")).status).toBe(404);
  });

  it("are dismissed by the name of their event type, and may be dismissed again", async () => {
    const path = `/v2/alert/${one.uid}/Node%20Disconnect`;
    expect((await bench.call("DELETE", path)).json).toEqual({});
    expect(await bench.call("DELETE", path)).toMatchObject({ status: 200, json: {} });
    const nowhere = "/v2/alert/00000000-0000-4000-8000-000000000000/Node%20Disconnect";
    expect((await bench.call("DELETE", nowhere)).status).toBe(404);
    expect((await bench.fleet.services.alerts.find()).map(({ uid }) => uid)).toEqual(["a-two"]);
  });

  it("take nodes::manage too where dismissing lifts a hold", async () => {
    const path = `/v2/alert/${one.uid}/Identity%20Shared`;
    const refused = await bench.call("DELETE", path, { key: await bench.keyFor(["alerts::read"]) });
    expect(refused.status).toBe(403);
    expect(refused.json).toMatchObject({ details: { action: "nodes::manage" } });
    const key = await bench.keyFor(["alerts::read", "nodes::manage"]);
    expect((await bench.call("DELETE", path, { key })).status).toBe(200);
  });
});

describe("GET /stats/realtime/usage", () => {
  it("answers buckets over the asked range", async () => {
    const answer = await bench.call(
      "GET",
      "/stats/realtime/usage?start=0&end=900&intervalInMinutes=5&filters=site:berlin",
    );
    expect(answer.json).toEqual([0, 300, 600].map((t) => ({ bytes: 0, count: 0, t })));
    const week = await bench.call("GET", "/stats/realtime/usage?relative_start=-7%20days&relative_end=now");
    expect(items(week.json).length).toBeGreaterThanOrEqual(168);
  });

  it.each([
    "?start=0&end=99999999&intervalInMinutes=1",
    "?start=10&end=5",
    "?start=-1",
    "?start=x",
    "?relative_start=soon",
    "?intervalInMinutes=0",
    "?intervalInMinutes=1.5",
    "?filters=nocolon",
    "?start=1&relative_start=-1%20day",
  ])("refuses %s with an array of strings", async (query) => {
    const answer = await bench.call("GET", `/stats/realtime/usage${query}`);
    expect(answer.status).toBe(422);
    expect(answer.json).toEqual([expect.stringMatching(/^[\w.]+: /)]);
  });
});

describe("the query of an event list", () => {
  it.each([
    "levels=ERROR,INFO",
    "levels[]=ERROR&levels[]=INFO",
    "levels[0]=ERROR&levels[1]=INFO",
    "levels[]=ERROR,INFO",
  ])("takes the list %s", async (query) => {
    for (const path of ["/v2/event", `/v2/event/${one.uid}`]) {
      const answer = await bench.call("GET", `${path}?${query}`);
      expect(items(answer.json).map(({ uid }) => uid)).toEqual(path === "/v2/event" ? ["e2", "e1"] : ["e1"]);
    }
  });

  it.each([
    ["level=ERROR", /level/],
    ["levels[x]=ERROR", /levels\[x\]/],
    ["toString=1", /toString/],
    ["limit[]=5", /^limit: /],
    ["levels[]=LOUD", /^levels\.0: /],
    ["sTime=2026-01-01T00:00:00", /^sTime: .*with Z or an offset/],
    ["eTime=yesterday", /^eTime: .*with Z or an offset/],
  ])("refuses %s by name", async (query, line) => {
    for (const path of ["/v2/event", `/v2/event/${one.uid}`]) {
      const answer = await bench.call("GET", `${path}?${query}`);
      expect([answer.status, answer.json]).toEqual([422, [expect.stringMatching(line)]]);
    }
  });
});

it("an event of the organization or a cluster has no fields of a node, and only who reads all nodes sees it", async () => {
  await bench.call("POST", "/v2/service-user", { json: { name: "bot" } });
  await bench.fleet.services.clusters.create({ name: "pair" }, "test");
  const list = async (query: string, key?: string) =>
    items((await bench.call("GET", `/v2/event?${query}`, key === undefined ? {} : { key })).json);
  const [org] = await list("itemTypes=Org");
  expect(org).toMatchObject({ subject: "Org", message: "Service user bot created" });
  const [cluster] = await list("itemTypes=Cluster");
  expect(cluster).toMatchObject({ subject: "Cluster", fqdn: "pair.example.net" });
  for (const event of [org, cluster]) {
    expect(event).not.toHaveProperty("nodeId");
    expect(event).not.toHaveProperty("nodeName");
  }
  const node = await bench.fleet.add({ name: "subject" });
  const key = await bench.keyFor(["events::read"], [`tgrn:tg::nodes:node/${node.uid}`]);
  expect(await list("itemTypes=Org,Cluster", key)).toEqual([]);
});
