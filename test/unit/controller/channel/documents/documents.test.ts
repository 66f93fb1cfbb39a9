import { expect, test } from "vitest";
import { peekClaims, verifyJws } from "../../../../../src/protocol/channel/jws.ts";
import { KeysEnvelopes, keySetOf } from "../../../../../src/protocol/channel/keys-chain.ts";
import type { Controller } from "../../../../../src/controller/controller.ts";
import { fetchTicket, NOTHING, until } from "../../../../support/control-plane/node-client.ts";
import { addNode, MovableClock, runController } from "../../../../support/control-plane/running-controller.ts";

async function restoredEvents(controller: Controller) {
  const filter = { eventTypes: ["Control Plane Restored"], sort: { by: "timestamp", order: "asc" } } as const;
  return (await controller.events.find({ ...filter, limit: 10, offset: 0 })).items;
}

test("each document is signed for exactly its node", async () => {
  const controller = await runController({ domain: "net.example" });
  const node = await addNode(controller, "edge");
  await controller.clusters.create({ name: "pair" }, "test");
  await controller.nodes.update(node.uid, { cluster: "pair.net.example" }, "test");
  await controller.nodes.setTag(node.uid, "site", "north", "test");
  const session = await node.connect();
  const envelopes = KeysEnvelopes.parse(JSON.parse((await session.fetchDocument(controller.url, "keys")) ?? "[]"));
  const { signing } = peekClaims("holdfast-keys+jwt", envelopes[0]?.jws ?? "");
  const subjects = { node: node.uid, cluster: "pair.net.example", domain: "net.example" };
  for (const name of ["node", "cluster", "domain"] as const) {
    const jws = await session.fetchDocument(controller.url, name);
    const claims = await verifyJws("holdfast-document+jwt", jws ?? "", await keySetOf(signing));
    expect(claims).toMatchObject({ iss: controller.url, aud: node.uid, name, sub: subjects[name] });
  }
  const body = peekClaims("holdfast-document+jwt", (await session.fetchDocument(controller.url, "node")) ?? "").body;
  expect(body).toMatchObject({ uid: node.uid, cluster: "pair.net.example", tags: { site: "north" }, state: "ACTIVE" });
});

test("a ticket works once, only while its session is open, and for a minute", async () => {
  const clock = new MovableClock();
  const controller = await runController({ clock });
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  const ticket = async (): Promise<string> => {
    const answer = await session.peer.request("document.get", { name: "node", have: 0 });
    return "ticket" in answer ? answer.ticket : "";
  };
  const first = await ticket();
  const response = await fetchTicket(controller.url, first);
  expect([response.status, response.headers.get("content-type")]).toEqual([200, "application/jose"]);
  expect((await fetchTicket(controller.url, first)).status).toBe(401);
  const late = await ticket();
  clock.advance(60_001);
  expect((await fetchTicket(controller.url, late)).status).toBe(401);
  const orphan = await ticket();
  await session.cut();
  await until(async () => (await controller.nodes.get(node.uid))?.isOnline === false);
  expect((await fetchTicket(controller.url, orphan)).status).toBe(401);
});

test("a change raises the version and is announced once; the same content is not a change", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  await controller.nodes.setTag(node.uid, "a", "1", "test");
  await controller.nodes.setTag(node.uid, "b", "2", "test");
  await until(() => session.changed.length > 0);
  expect(session.changed).toEqual([{ name: "node", version: 3 }]);
  await controller.nodes.setTag(node.uid, "b", "2", "test");
  await controller.config.setSection(node.uid, "connectors", "test", () => ({ body: { items: {} } }));
  await until(() => session.changed.length > 1);
  expect(session.changed[1]).toEqual({ name: "node", version: 4 });
  expect(await session.peer.request("document.get", { name: "node", have: 4 })).toEqual({
    version: 4,
    unchanged: true,
  });
  await expect(session.peer.request("document.get", { name: "cluster", have: 0 })).rejects.toMatchObject({
    code: "not-found",
  });
});

test("the cluster's other members hear of a new one; versions go on rising from cluster to cluster", async () => {
  const controller = await runController();
  const [first, second] = [await addNode(controller, "first"), await addNode(controller, "second")];
  const { fqdn: a } = await controller.clusters.create({ name: "a" }, "test");
  const { fqdn: b } = await controller.clusters.create({ name: "b" }, "test");
  await controller.nodes.update(first.uid, { cluster: a }, "test");
  const session = await first.connect();
  await controller.nodes.update(second.uid, { cluster: a }, "test");
  await until(() => session.changed.length > 0);
  expect(session.changed).toEqual([{ name: "cluster", version: 2 }]);
  await controller.nodes.update(first.uid, { cluster: b }, "test");
  await until(() => session.changed.length > 2);
  expect(session.changed.slice(1)).toEqual([
    { name: "node", version: 3 },
    { name: "cluster", version: 3 },
  ]);
  await controller.clusters.delete(b, "test");
  expect((await controller.nodes.get(first.uid))?.cluster).toBeUndefined();
});

test("a control plane restored from a backup goes past what the node holds", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect({ claims: { have: { ...NOTHING, node: 41, domain: 1 } } });
  expect(peekClaims("holdfast-server-proof+jwt", session.serverProof).versions).toMatchObject({ node: 42, domain: 1 });
  const jws = await session.fetchDocument(controller.url, "node", 41);
  expect(peekClaims("holdfast-document+jwt", jws ?? "").version).toBe(42);
  expect(await restoredEvents(controller)).toMatchObject([{ level: "WARNING", details: { have: 41, stored: 1 } }]);
  expect(await session.peer.request("document.get", { name: "domain", have: 9 })).toMatchObject({ version: 10 });
});

test("a leap of more than 2^32 versions is not followed", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect({ claims: { have: { ...NOTHING, node: 2 ** 32 + 2 } } });
  expect(peekClaims("holdfast-server-proof+jwt", session.serverProof).versions.node).toBe(1);
  expect(await restoredEvents(controller)).toMatchObject([{ details: { followed: false } }]);
});

test("what a node applied is kept by document", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  const report = { name: "node", version: 1, at: 1, durationMs: 2, outcome: "partial" } as const;
  const sections = { vpn: { state: "unsupported" as const, issues: [], steps: 0 } };
  await session.peer.request("document.applied", { ...report, sections });
  expect((await controller.nodes.get(node.uid))?.applied).toEqual({ node: { ...report, sections } });
});

test("desired names each document until the node has answered its version", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const { fqdn } = await controller.clusters.create({ name: "pair" }, "test");
  await controller.nodes.update(node.uid, { cluster: fqdn }, "test");
  const session = await node.connect();
  const answer = (name: "node" | "cluster" | "domain", version: number, outcome: "converged" | "rolled-back") =>
    session.peer.request("document.applied", { name, version, at: 1, durationMs: 1, outcome, sections: {} });
  const desired = async () => [
    (await controller.nodes.get(node.uid))?.desired,
    (await controller.nodes.all())[0]?.desired,
  ];
  const versions = { "document.node.version": 2, "document.cluster.version": 1, "document.domain.version": 1 };
  expect(await desired()).toEqual([versions, versions]);
  await answer("node", 1, "converged");
  await answer("cluster", 1, "converged");
  await answer("domain", 1, "converged");
  expect(await desired()).toEqual([{ "document.node.version": 2 }, { "document.node.version": 2 }]);
  await answer("node", 2, "rolled-back");
  expect(await desired()).toEqual([{}, {}]);
  await controller.clusters.setTag(fqdn, "site", "north", "test");
  expect(await desired()).toEqual([{ "document.cluster.version": 2 }, { "document.cluster.version": 2 }]);
  await controller.nodes.update(node.uid, { cluster: null }, "test");
  expect(await desired()).toEqual([{ "document.node.version": 3 }, { "document.node.version": 3 }]);
});

test("a keys document above ours is told and not followed", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  expect(await session.peer.request("document.get", { name: "keys", have: 7 })).toEqual({
    version: 1,
    unchanged: true,
  });
  expect(await restoredEvents(controller)).toMatchObject([{ details: { document: "keys", have: 7, followed: false } }]);
});

test("a node that asks again and again with versions of its own moves a document once, and is told of once", async () => {
  const clock = new MovableClock();
  const controller = await runController({ clock });
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  let version = 1;
  for (let i = 0; i < 5; i += 1) {
    ({ version } = await session.peer.request("document.get", { name: "node", have: version + 1 }));
  }
  expect(version).toBe(3);
  for (let i = 0; i < 5; i += 1) {
    await session.peer.request("document.get", { name: "domain", have: Number.MAX_SAFE_INTEGER });
    await session.peer.request("document.get", { name: "keys", have: 7 + i });
  }
  expect((await restoredEvents(controller)).map(({ details }) => details["document"])).toEqual([
    "node",
    "domain",
    "keys",
  ]);

  // The same again in other sessions is no news, and something else is at most once in ten minutes.
  await node.connect({ claims: { have: { ...NOTHING, keys: 7 } } });
  await node.connect({ claims: { have: { ...NOTHING, keys: 8 } } });
  clock.advance(600_001);
  await node.connect({ claims: { have: { ...NOTHING, keys: 7 } } });
  expect(await restoredEvents(controller)).toHaveLength(3);
  await node.connect({ claims: { have: { ...NOTHING, keys: 9 } } });
  expect(await restoredEvents(controller)).toHaveLength(4);
});
