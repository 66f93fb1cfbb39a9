import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { items } from "../../../support/control-plane/api-bench.ts";
import { until } from "../../../support/control-plane/node-client.ts";
import { flowAt } from "../../../support/overlay/flow-record.ts";
import { addNode, runController } from "../../../support/control-plane/running-controller.ts";

test("flow records are stored under the node that sends them, and bad ones block nothing", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  const key = readFileSync(controller.adminKeyPath, "utf8").trim();
  const found = async () => {
    const answer = await fetch(`${controller.url}/v2/flow?sort=endTime:asc&sTime=1970-01-01&eTime=9999-01-01`, {
      headers: { authorization: key },
    });
    return items(await answer.json());
  };
  const push = (first: number, records: Record<string, unknown>[]) =>
    session.peer.request("telemetry.push", { stream: "flows", first, records });
  const now = Math.floor(Date.now() / 1000) * 1000;
  const day = 24 * 3_600_000;
  const good = (destPort: number) => ({ ...flowAt(now - 60_000 + destPort * 1000), destPort });

  expect(await push(1, [{ ...good(1), nodeId: "forged", uid: "forged" }, good(2)])).toEqual({ last: 2 });
  expect(await push(2, [good(2), good(3)])).toEqual({ last: 3 });
  const bad = [
    { ...good(9), protocol: "GRE" },
    { ...good(9), flags: 65_536 },
    { ...good(9), flags: "-1" },
    { ...good(9), endTime: "2026-02-30T00:00:00.000Z" },
    { ...good(9), startTime: "2026-01-01T00:00:00Z" },
    { ...good(9), destIP: "example.net" },
    { ...good(9), meta: { text: "x".repeat(5000) } },
    { ...good(9), meta: [] },
    { ...good(9), sourceBytes: 0.5 },
    flowAt(now - 31 * day),
    flowAt(now + 2 * day),
    {},
  ];
  expect(await push(4, [...bad, good(4)])).toEqual({ last: 3 + bad.length + 1 });

  const records = await found();
  expect(records.map(({ destPort }) => destPort)).toEqual([1, 2, 3, 4]);
  expect(new Set(records.map(({ nodeId }) => nodeId))).toEqual(new Set([node.uid]));
  expect(records.some((record) => "uid" in record)).toBe(false);
});

test("gateway details are stored under the node that sends them, and bad ones block nothing", async () => {
  const controller = await runController();
  const [edge, gateway] = [await addNode(controller, "edge"), await addNode(controller, "gw")];
  const session = await edge.connect();
  const key = readFileSync(controller.adminKeyPath, "utf8").trim();
  const now = Math.floor(Date.now() / 60_000) * 60;
  const found = async (uid: string) => {
    const query = `startDate=0&endDate=${now + 200_000}`;
    const answer = await fetch(`${controller.url}/v2/node/${uid}/plugin-logs/gateway-details?${query}`, {
      headers: { authorization: key },
    });
    return answer.json();
  };
  const rtt = { minRtt: 1, maxRtt: 2, meanRtt: 1.5, stdRtt: 0.5, numRtt: 3 };
  const good = (minute: number) => ({ time: (now - minute * 60) * 1000, node: "gw", ...rtt });
  const hop = { hop: 1, ip: "192.0.2.1", fqdn: "192.0.2.1", minRtt: 1, maxRtt: 1, meanRtt: 1, numRtt: 1 };
  const records = [
    { ...good(3), uid: "forged" },
    { ...good(2), minRtt: -1 },
    { ...good(2), node: "Not A Name" },
    { ...good(2), numRtt: 0 },
    { ...good(2), meanRtt: null },
    { ...good(2), path: "" },
    { ...good(2), hops: [{ ...hop, ip: "hop" }] },
    { ...good(2), hops: Array.from({ length: 65 }, () => hop) },
    { ...good(2), time: (now - 91 * 86_400) * 1000 },
    { ...good(2), time: (now + 2 * 86_400) * 1000 },
    {},
    { ...good(1), hops: [hop] },
  ];
  const push = (first: number, list: Record<string, unknown>[]) =>
    session.peer.request("telemetry.push", { stream: "gateway-details", first, records: list });
  expect(await push(1, records)).toEqual({ last: records.length });
  expect(await push(1, records)).toEqual({ last: records.length });
  const kept = [good(3), { ...good(1), hops: [hop] }];
  const seenThere = [
    {
      stats: [
        { ...good(3), node: "edge" },
        { ...good(1), hops: [hop], node: "edge" },
      ],
    },
  ];
  expect(await found(edge.uid)).toEqual([{ stats: kept }]);
  expect(await found(gateway.uid)).toEqual(seenThere);
  await controller.nodes.delete(edge.uid, "test");
  expect(await found(gateway.uid)).toEqual(seenThere);
});

test("output of containers is stored once, found by container and time, and bad records block nothing", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  const key = readFileSync(controller.adminKeyPath, "utf8").trim();
  const now = Math.floor(Date.now() / 1000);
  const found = async (query = "") => {
    const path = `/v2/node/${node.uid}/plugin-logs/container-output?${query}`;
    const answer = await fetch(controller.url + path, { headers: { authorization: key } });
    return { status: answer.status, body: (await answer.json()) as { text: string }[] };
  };
  const good = (text: string, ago = 0) => ({
    container: "3f2b",
    name: "web",
    run: "0123-1",
    stream: "stdout",
    at: (now - ago) * 1000,
    text,
  });
  const records = [
    { ...good("first", 60), uid: "forged" },
    { ...good("x"), stream: "stdin" },
    { ...good("x"), text: "" },
    { ...good("x"), text: "x".repeat(4097) },
    { ...good("x"), at: 1.5 },
    good("x", 31 * 86_400),
    good("x", -2 * 86_400),
    {},
    { ...good("second"), stream: "stderr" },
    { ...good("other"), name: "db", container: "4a" },
  ];
  const push = (list: object[]) =>
    session.peer.request("telemetry.push", {
      stream: "output",
      first: 1,
      records: list.map((record) => ({ ...record })),
    });
  expect(await push(records)).toEqual({ last: records.length });
  await push(records);
  const texts = async (query = "") => (await found(query)).body.map(({ text }) => text);
  expect(await texts()).toEqual(["first", "second", "other"]);
  expect((await found()).body[1]).toEqual({ ...good("second"), stream: "stderr" });
  expect(await texts("container=web")).toEqual(["first", "second"]);
  expect(await texts("container=4a")).toEqual(["other"]);
  expect(await texts("limit=1")).toEqual(["other"]);
  expect(await texts(`sTime=${new Date((now - 30) * 1000).toISOString()}`)).toEqual(["second", "other"]);
  expect(await texts(`eTime=${new Date((now - 30) * 1000).toISOString()}`)).toEqual(["first"]);
  for (const query of ["limit=0", "limit=2001", "sTime=soon", "container=", "what=1"]) {
    expect((await found(query)).status).toBe(422);
  }
});

test("a node writes no record as the control plane's, in whatever spelling", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  const timestamp = Math.floor(Date.now() / 1000);
  const ahead = timestamp + 1e6;
  const audit = (category: string) => ({ category, value: "root invoked Node Reboot", timestamp: ahead });
  const categories = [
    "Node Action",
    "node action",
    " Node\u00a0Action ",
    "Ｎode Action",
    "N\u043ede Action",
    "N0de Actlon",
    "OS Update",
  ];
  await session.peer.request("telemetry.push", { stream: "audits", first: 1, records: categories.map(audit) });
  const event = (eventType: string) => {
    return { eventType, level: "INFO", message: "forged", timestamp, state: "UNKNOWN", details: { user: "root" } };
  };
  const types = ["Configuration Change", "configuration  change", "Configuration\u200b Change", "Disk Full"];
  types.push("C\u043enfiguration Change", "Node C\u03bfnnect", "ldentity Shared", "N0de Disc0nnect", "Disk\u00adFull");
  await session.peer.request("telemetry.push", {
    stream: "events",
    first: 1,
    records: types.map(event),
  });
  const audits = (await controller.events.audits({ limit: 100, offset: 0 })).items;
  expect(audits.map(({ category, origin }) => [category, origin])).toEqual([
    ["OS Update", "node"],
    ...Array.from({ length: 6 }, () => ["Local Action", "node"]),
  ]);
  expect(Math.max(...audits.map((one) => one.timestamp))).toBeLessThan(ahead);
  const sort = { by: "timestamp", order: "asc" } as const;
  const events = (await controller.events.find({ nodeIds: [node.uid], sort, limit: 100, offset: 0 })).items;
  expect(events.filter(({ origin }) => origin === "node").map(({ eventType }) => eventType)).toEqual(["Disk Full"]);
  expect(events.filter(({ eventType }) => eventType === "Node Connect")).toMatchObject([{ origin: "control-plane" }]);
  expect(events.filter(({ message }) => message === "forged")).toHaveLength(1);
});

test("a node deregisters itself and nobody else, and its record stays", async () => {
  const controller = await runController();
  const [leaving, other] = [await addNode(controller, "leaving"), await addNode(controller, "other")];
  const key = readFileSync(controller.adminKeyPath, "utf8").trim();
  const get = async (path: string) =>
    (await fetch(`${controller.url}${path}`, { headers: { authorization: key } })).json();
  const session = await other.connect();
  const event = {
    eventType: "Deregister",
    level: "INFO",
    message: "The node deregisters",
    state: "UNKNOWN",
    timestamp: Math.floor(Date.now() / 1000),
    details: { nodeEventId: crypto.randomUUID(), nodeId: leaving.uid },
    nodeId: leaving.uid,
  };
  expect(await session.peer.request("telemetry.push", { stream: "events", first: 1, records: [event] })).toEqual({
    last: 1,
  });
  const deregistered = async (uid: string) =>
    items(await get(`/v2/event/${uid}?limit=100`)).filter(({ eventType }) => eventType === "Deregister");
  expect(await deregistered(leaving.uid)).toEqual([]);
  expect(await deregistered(other.uid)).toMatchObject([{ nodeId: other.uid, level: "INFO", origin: "node" }]);
  expect(items(await get("/node")).map(({ uid }) => uid)).toEqual([leaving.uid, other.uid]);
});

test("a node numbers no record beyond what a number holds exactly, and its next ones are stored", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  const push = (first: number, count: number) =>
    session.peer.request("telemetry.push", {
      stream: "audits",
      first,
      records: Array.from({ length: count }, () => ({})),
    });
  await expect(push(Number.MAX_SAFE_INTEGER, 3)).rejects.toMatchObject({ code: "invalid-body" });
  expect(await push(1, 3)).toEqual({ last: 3 });
  const most = Number.MAX_SAFE_INTEGER - 500;
  expect(await push(most, 500)).toEqual({ last: most + 499 });
  expect(await push(most, 500)).toEqual({ last: most + 499 });
});

test("a node opens at most 256 alerts, which hides none of the control plane's", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  const now = Math.floor(Date.now() / 1000);
  const alert = (n: number) => ({
    eventType: `Kind ${n}`,
    level: "WARNING",
    message: "",
    timestamp: now,
    state: "EXCEEDED",
    details: {},
  });
  const records = Array.from({ length: 300 }, (_, n) => alert(n));
  expect(await session.peer.request("telemetry.push", { stream: "events", first: 1, records })).toEqual({ last: 300 });
  expect(await controller.alerts.find(node.uid)).toHaveLength(256);
  await session.cut();
  const types = async () => (await controller.alerts.find(node.uid)).map(({ eventType }) => eventType);
  await until(async () => (await types()).includes("Node Disconnect"));
  expect(await types()).toHaveLength(257);
});
