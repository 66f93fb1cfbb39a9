import { expect, test } from "vitest";
import type { Controller } from "../../../../src/controller/controller.ts";
import { peekClaims } from "../../../../src/protocol/channel/jws.ts";
import { ClusterDocument, DomainDocument, NodeDocument } from "../../../../src/protocol/documents/documents.ts";
import { until, type TestNode, type TestSession } from "../../../support/control-plane/node-client.ts";
import { addNode, runController } from "../../../support/control-plane/running-controller.ts";
import { freePort } from "../../../support/free-port.ts";

async function reports(controller: Controller, uid: string) {
  const filter = { nodeIds: [uid], eventTypes: ["Unauthorized IP"], limit: 100, offset: 0 };
  const { items } = await controller.events.find({ ...filter, sort: { by: "timestamp", order: "asc" } });
  return items.map(({ level, state }) => [level, state]);
}

const connectFrom = (node: TestNode, localAddress: string) => node.connect({ socket: { localAddress } });

/** The node document that its newest session is given. */
async function document(controller: Controller, session: TestSession): Promise<NodeDocument> {
  const jws = (await session.fetchDocument(controller.url, "node")) ?? "";
  return NodeDocument.parse(peekClaims("holdfast-document+jwt", jws).body);
}

test("a locked node that connects from another address is held INACTIVE with the reason, until it is back", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  await connectFrom(node, "127.0.0.1");
  expect((await controller.nodes.setLock(node.uid, "current", "test")).lockedTo).toEqual(["127.0.0.1"]);
  expect((await controller.nodes.get(node.uid))?.unauthorizedIp).toBeUndefined();

  await controller.nodes.setLock(node.uid, ["127.0.3.0/24", "192.0.2.7/32"], "test");
  expect(await reports(controller, node.uid)).toEqual([["WARNING", "EXCEEDED"]]);
  const outside = await connectFrom(node, "127.0.0.2");
  expect(await document(controller, outside)).toMatchObject({
    state: "INACTIVE",
    restricted: { code: "unauthorized-ip", address: "127.0.0.2" },
  });
  // The wish stays what it was, and so does the connection.
  expect(await controller.nodes.get(node.uid)).toMatchObject({ state: "ACTIVE", isOnline: true });
  expect((await controller.alerts.find(node.uid)).map(({ eventType }) => eventType)).toContain("Unauthorized IP");

  const inside = await connectFrom(node, "127.0.3.9");
  const whole = await document(controller, inside);
  expect([whole.state, whole.restricted]).toEqual(["ACTIVE", undefined]);
  expect((await reports(controller, node.uid)).at(-1)).toEqual(["INFO", "CLEARED"]);
  expect(await controller.alerts.find(node.uid)).toEqual([]);
});

test("who has the keys elsewhere does not end the session of the place that the node is locked to", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const own = await connectFrom(node, "127.0.0.1");
  await controller.nodes.setLock(node.uid, "current", "test");
  const stolen = await connectFrom(node, "127.0.0.2");
  expect(await stolen.raw.closeCode()).toBe(4002);
  expect(own.raw.closed).toBeUndefined();
  expect((await controller.nodes.get(node.uid))?.lastIp).toBe("127.0.0.1");
  expect((await controller.nodes.get(node.uid))?.unauthorizedIp).toBeUndefined();
  expect(await reports(controller, node.uid)).toEqual([["WARNING", "UNKNOWN"]]);
  expect((await document(controller, own)).state).toBe("ACTIVE");
});

test("a node that is held gets no key of a volume and no token of the registry, and no terminal is opened on it", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await connectFrom(node, "127.0.0.1");
  await controller.nodes.setLock(node.uid, ["127.0.0.2/32"], "test");
  const refusal = { code: "unauthorized-ip" };
  // The machine may be a copy, and does not learn the lock.
  const toNode = { ...refusal, message: expect.not.stringContaining("127.0.0.2") as string };
  await expect(session.peer.request("volume.key", { volume: "data" })).rejects.toMatchObject(toNode);
  await expect(session.peer.request("registry.token", { repository: "team/app" })).rejects.toMatchObject(toNode);
  const terminal = { container: "web", cols: 80, rows: 24, user: "test" };
  const opened = controller.terminals.open(node.uid, terminal, AbortSignal.timeout(1000));
  const toOperator = { ...refusal, message: expect.stringContaining("127.0.0.2/32") as string };
  await expect(opened).rejects.toMatchObject(toOperator);
});

test("its neighbours do not know a node that is held, also after it is let go and held again", async () => {
  const controller = await runController();
  const gateway = await addNode(controller, "gw");
  const edge = await addNode(controller, "edge");
  const server = { enabled: true, host: "gw.example.net", port: 8443, type: "public" };
  await controller.config.setSection(gateway.uid, "gateway", "test", () => ({ body: server }));
  const watching = await connectFrom(gateway, "127.0.0.1");
  await connectFrom(edge, "127.0.0.1");
  const peers = async (): Promise<unknown[]> => {
    const jws = (await watching.fetchDocument(controller.url, "domain")) ?? "";
    const { peers: known } = DomainDocument.parse(peekClaims("holdfast-document+jwt", jws).body);
    return known.map(({ name }) => name);
  };
  expect(await peers()).toEqual(["edge"]);
  await controller.nodes.setLock(edge.uid, ["127.0.0.9/32"], "test");
  expect(await peers()).toEqual([]);
  await controller.nodes.setLock(edge.uid, undefined, "test");
  expect(await peers()).toEqual(["edge"]);
  await controller.nodes.setLock(edge.uid, "current", "test");
  await (await connectFrom(edge, "127.0.0.1")).cut();
  await until(async () => (await controller.nodes.get(edge.uid))?.isOnline === false);
  await connectFrom(edge, "127.0.0.2");
  expect(await peers()).toEqual([]);
});

test("a node that never connected cannot be locked to where it is, and none behind a front end that hides it", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  await expect(controller.nodes.setLock(node.uid, "current", "test")).rejects.toMatchObject({ code: "invalid-body" });
  const port = await freePort();
  const front = { publicUrl: "https://cp.example", frontPins: ["A".repeat(43)], listen: `127.0.0.1:${port}` };
  const hidden = await runController(front);
  await expect(hidden.nodes.setLock(node.uid, ["192.0.2.1/32"], "test")).rejects.toMatchObject({
    code: "not-configured",
  });
});

test("a node is not locked to a front end that has not named its address", async () => {
  const controller = await runController({ trustedProxies: ["127.0.0.1"] });
  const node = await addNode(controller, "edge");
  await node.connect();
  await expect(controller.nodes.setLock(node.uid, "current", "test")).rejects.toMatchObject({ code: "not-configured" });
  expect((await controller.nodes.get(node.uid))?.lockedTo).toBeUndefined();
  await node.connect({ socket: { headers: { "x-forwarded-for": "198.51.100.1, 203.0.113.9" } } });
  expect((await controller.nodes.setLock(node.uid, "current", "test")).lockedTo).toEqual(["203.0.113.9"]);
});

test("a node that is held gets the sections network of itself and of its cluster, and no other", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const { fqdn } = await controller.clusters.create({ name: "pair" }, "test");
  await controller.nodes.update(node.uid, { cluster: fqdn }, "test");
  await controller.config.setSection(node.uid, "network", "test", () => ({ body: { darkMode: true } }));
  await controller.config.setSection(node.uid, "connectors", "test", () => ({ body: { connectors: [] } }));
  await controller.config.setClusterSection(fqdn, "network", "test", () => ({ interfaces: [] }));
  await controller.config.setClusterSection(fqdn, "services", "test", () => ({ services: [] }));
  await controller.nodes.setLock(node.uid, ["127.0.0.1/32"], "test");
  const sections = async (session: TestSession): Promise<string[][]> => {
    const jws = (await session.fetchDocument(controller.url, "cluster")) ?? "";
    const cluster = ClusterDocument.parse(peekClaims("holdfast-document+jwt", jws).body);
    return [(await document(controller, session)).config, cluster.config].map((config) =>
      Object.keys(config).toSorted(),
    );
  };
  expect(await sections(await connectFrom(node, "127.0.0.2"))).toEqual([["network"], ["network"]]);
  const inside = await connectFrom(node, "127.0.0.1");
  expect(await sections(inside)).toEqual([
    ["connectors", "network"],
    ["network", "services"],
  ]);
});

test("a node that is held takes only the triggers that repair its connection; any other is refused naming the lock", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await connectFrom(node, "127.0.0.1");
  await controller.nodes.setLock(node.uid, ["127.0.0.9/32"], "test");
  const run = (event: string) => {
    const order = { event, body: {}, wait: false, user: "test", deadlineMs: 1000 };
    return controller.triggers.run(node.uid, order, { signal: AbortSignal.timeout(1000) });
  };
  const refusal = { code: "unauthorized-ip", message: expect.stringContaining("127.0.0.9/32") as string };
  for (const event of ["status", "tg-tcpdump", "node-reboot", "container-exec", "rollback", "web"]) {
    await expect(run(event)).rejects.toMatchObject(refusal);
  }
  for (const event of ["tg-ping", "tg-traceroute", "network-status", "network-keep"]) {
    expect(await run(event)).toBe(true);
  }
  expect(session.raw.closed).toBeUndefined();
});

test("a trigger that waits for a node is not sent again to where it is held", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect({
    socket: { localAddress: "127.0.0.1" },
    handlers: { "trigger.run": () => new Promise(() => undefined) },
  });
  await controller.nodes.setLock(node.uid, ["127.0.0.1/32"], "test");
  const order = { event: "status", body: {}, wait: true, user: "test", deadlineMs: 10_000 };
  const answer = controller.triggers.run(node.uid, order, { signal: AbortSignal.timeout(10_000) });
  const refused = expect(answer).rejects.toMatchObject({ code: "unauthorized-ip" });
  await session.cut();
  await until(async () => (await controller.nodes.get(node.uid))?.isOnline === false);
  await connectFrom(node, "127.0.0.2");
  await refused;
});

test("a lock to an IPv4 address that is mapped into IPv6 is one to the IPv4 address", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  await connectFrom(node, "127.0.0.2");
  const held = async () => (await controller.nodes.get(node.uid))?.unauthorizedIp;
  await controller.nodes.setLock(node.uid, ["::ffff:127.0.0.2"], "test");
  expect(await held()).toBeUndefined();
  await controller.nodes.setLock(node.uid, ["::ffff:7f00:0/120"], "test");
  expect(await held()).toBeUndefined();
  await controller.nodes.setLock(node.uid, ["::ffff:127.0.0.3"], "test");
  expect(await held()).toBe("127.0.0.2");
});
