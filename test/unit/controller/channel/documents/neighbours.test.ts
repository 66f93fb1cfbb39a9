import { expect, test } from "vitest";
import type { Controller } from "../../../../../src/controller/controller.ts";
import { neighbours } from "../../../../../src/controller/channel/documents/neighbours.ts";
import type { MeshRecord } from "../../../../../src/controller/channel/documents/mesh-node.ts";
import type { MeshRow } from "../../../../../src/controller/channel/documents/mesh-store.ts";
import { DomainDocument } from "../../../../../src/protocol/documents/documents.ts";
import { DomainPeer } from "../../../../../src/protocol/sections/gateway/domain-items.ts";
import { peekClaims } from "../../../../../src/protocol/channel/jws.ts";
import type { NodeType } from "../../../../../src/protocol/values/values.ts";
import { connectors, meshRecord, server, uidOf } from "../../../../support/overlay/mesh-records.ts";
import { TestNode, until, type TestSession } from "../../../../support/control-plane/node-client.ts";
import { addNode, runController, temporaryDirectory } from "../../../../support/control-plane/running-controller.ts";

/** Connected nodes by name, and what each of them hears. */
class Listeners {
  readonly controller: Controller;
  readonly #sessions = new Map<string, TestSession>();
  readonly #uids = new Map<string, string>();
  #barrier = 0;

  constructor(controller: Controller) {
    this.controller = controller;
  }

  async add(name: string, type: NodeType = "Node"): Promise<string> {
    const node = await addNode(this.controller, name, { type });
    this.#sessions.set(name, await node.connect());
    this.#uids.set(name, node.uid);
    return node.uid;
  }

  uid(name: string): string {
    return this.#uids.get(name) ?? "";
  }

  /** The names of those who heard of a new `domain` document: a later change of every node shows that nothing more comes. */
  async told(change: () => unknown): Promise<readonly string[]> {
    for (const session of this.#sessions.values()) session.changed.length = 0;
    await change();
    this.#barrier += 1;
    const left = new Set((await this.controller.nodes.all()).map(({ uid }) => uid));
    const sessions = [...this.#sessions].filter(([name]) => left.has(this.uid(name)));
    for (const [name] of sessions)
      await this.controller.nodes.setTag(this.uid(name), "barrier", String(this.#barrier), "test");
    await until(() => sessions.every(([, { changed }]) => changed.some(({ name }) => name === "node")));
    return sessions
      .filter(([, { changed }]) => changed.some(({ name }) => name === "domain"))
      .map(([name]) => name)
      .sort();
  }

  /** Returns the peers and the granted services in the newest domain document of a node. */
  async knows(name: string): Promise<{ readonly peers: readonly string[]; readonly grants: readonly string[] }> {
    const jws = await this.#sessions.get(name)?.fetchDocument(this.controller.url, "domain");
    const { peers, grants } = DomainDocument.parse(peekClaims("holdfast-document+jwt", jws ?? "").body);
    const names = peers.map((peer) => DomainPeer.parse(peer).name).sort();
    return { peers: names, grants: grants.map(({ service }) => String(service)) };
  }
}

test("every change reaches the nodes whom it concerns, and no other", async () => {
  const controller = await runController({ domain: "net.example" });
  const all = new Listeners(controller);
  for (const name of ["a", "b", "gw", "other"]) await all.add(name);
  const put = (name: string, section: "gateway" | "connectors", body: object | undefined) => () =>
    controller.config.setSection(all.uid(name), section, "test", () => ({
      body: body === undefined ? undefined : { ...body },
    }));

  // A gateway comes: everybody dials it.
  expect(await all.told(put("gw", "gateway", server("public")))).toEqual(["a", "b", "gw", "other"]);
  expect(await all.knows("a")).toEqual({ peers: ["gw"], grants: [] });
  expect((await all.knows("gw")).peers).toEqual(["a", "b", "other"]);

  // What nobody else must know is told to nobody, and equal content is no news.
  expect(await all.told(put("gw", "gateway", server("public", { monitorHopsMode: "never" })))).toEqual([]);
  expect(await all.told(put("a", "connectors", connectors(["local", "web"])))).toEqual([]);
  expect(await all.told(() => controller.nodes.setLifecycleState(all.uid("gw"), "production", "test"))).toEqual([]);

  // A connector concerns both its ends.
  expect(await all.told(put("a", "connectors", connectors(["b", "web"])))).toEqual(["a", "b"]);
  expect([await all.knows("a"), await all.knows("b")]).toEqual([
    { peers: ["b", "gw"], grants: [] },
    { peers: ["a", "gw"], grants: ["web"] },
  ]);
  expect(await all.told(put("a", "connectors", connectors(["b", "web"], ["b", "db"])))).toEqual(["b"]);
  expect(await all.told(put("a", "connectors", connectors(["b", "db"])))).toEqual(["b"]);
  expect((await all.knows("b")).grants).toEqual(["db"]);

  // Who is not active is nobody's peer, and comes back.
  const state = (name: string, to: "ACTIVE" | "INACTIVE") => () =>
    controller.nodes.update(all.uid(name), { state: to }, "test");
  expect(await all.told(state("a", "INACTIVE"))).toEqual(["a", "b", "gw"]);
  expect([await all.knows("a"), (await all.knows("b")).grants]).toEqual([{ peers: [], grants: [] }, []]);
  expect(await all.told(state("a", "ACTIVE"))).toEqual(["a", "b", "gw"]);

  // A private gateway lists a cluster, whose members come and go.
  const { fqdn } = await controller.clusters.create({ name: "pair" }, "test");
  const listing = server("private", { clients: [{ name: "pair", enabled: true }] });
  expect(await all.told(put("gw", "gateway", listing))).toEqual(["a", "b", "gw", "other"]);
  expect(await all.told(() => controller.nodes.update(all.uid("b"), { cluster: fqdn }, "test"))).toEqual(["b", "gw"]);
  expect((await all.knows("gw")).peers).toEqual(["b"]);
  expect(await all.told(() => controller.clusters.delete(fqdn, "test"))).toEqual(["b", "gw"]);
  expect((await all.knows("gw")).peers).toEqual([]);

  // A new node, and one that is deleted.
  await all.told(put("gw", "gateway", server("hub")));
  await all.told(put("other", "connectors", connectors(["new", "x"])));
  expect(await all.told(() => all.add("new"))).toEqual(["gw", "other"]);
  expect(await all.knows("new")).toEqual({ peers: ["gw", "other"], grants: ["x"] });
  expect(await all.told(() => controller.nodes.delete(all.uid("gw"), "test"))).toEqual(["a", "b", "new", "other"]);
  expect((await all.knows("a")).peers).toEqual(["b"]);
  expect(await all.told(put("other", "connectors", undefined))).toEqual(["new", "other"]);
});

test("a restart is no change, and what it finds is compared with what comes", async () => {
  const dataDir = await temporaryDirectory();
  const first = await runController({ domain: "net.example", dataDir });
  const [edge, gateway] = [await addNode(first, "edge"), await addNode(first, "gw")];
  await first.config.setSection(gateway.uid, "gateway", "test", () => ({ body: server("public") }));
  await first.close();
  const second = await runController({ dataDir });
  const again = new TestNode(second.url, edge.uid, edge.identity);
  const session = await again.connect();
  expect(peekClaims("holdfast-server-proof+jwt", session.serverProof).versions.domain).toBe(2);
  await second.config.setSection(gateway.uid, "gateway", "test", () => ({
    body: server("public", { monitorHops: true }),
  }));
  await second.config.setSection(gateway.uid, "gateway", "test", () => ({ body: server("public", { port: 9443 }) }));
  await until(() => session.changed.length > 0);
  expect(session.changed).toEqual([{ name: "domain", version: 3 }]);
});

/** A store of a few rows, whose transactions may be rolled back. */
function fakeStore(...records: readonly MeshRecord[]) {
  const rowOf = ({ gateway, connectors: items, ...rest }: MeshRecord): MeshRow => ({
    ...rest,
    gateway: gateway === undefined ? undefined : JSON.stringify(gateway),
    connectors: items === undefined ? undefined : JSON.stringify(items),
  });
  const rows = new Map(records.map((record) => [record.uid, rowOf(record)]));
  const store = { read: 0, all: 0, mark: undefined as string | undefined };
  return {
    store,
    put: (record: MeshRecord) => rows.set(record.uid, rowOf(record)),
    mesh: {
      all() {
        store.all += 1;
        return Promise.resolve([...rows.values()]);
      },
      get(uid: string) {
        store.read += 1;
        return Promise.resolve(rows.get(uid));
      },
    },
    meta: {
      get: () => Promise.resolve(store.mark),
      set(_: string, value: string) {
        store.mark = value;
        return Promise.resolve();
      },
    },
  };
}

test("only what is said to have changed is read, and everything after a change that was rolled back or is another's", async () => {
  const gateway = meshRecord(3, { name: "gw", gateway: server("public") });
  const fake = fakeStore(meshRecord(1), meshRecord(2), gateway);
  const index = neighbours();
  const changed = async (...numbers: readonly number[]) => {
    const found = await index.changed(
      fake,
      numbers.map((number) => uidOf(number)),
    );
    return [...found].map(([uid, { peers }]) => [uid, peers.length]);
  };
  const everybody = (ofEdges: number) => [
    [uidOf(1), ofEdges],
    [uidOf(2), ofEdges],
    [uidOf(3), ofEdges === 0 ? 0 : 2],
  ];

  expect(await changed()).toEqual(everybody(1));
  expect(await changed(1, 2, 3)).toEqual([]);
  fake.put({ ...gateway, gateway: server("hub", { port: 9 }) });
  fake.store.read = 0;
  expect(await changed(1)).toEqual([]);
  expect(fake.store.read).toBe(1);
  expect(await changed(3)).toEqual([...everybody(1).slice(0, 2), [uidOf(3), 2]]);
  expect(fake.store.all).toBe(1);

  // The change is rolled back, and what is remembered is what was before it.
  const { mark } = fake.store;
  fake.put({ ...gateway, gateway: { enabled: false } });
  expect(await changed(3)).toEqual(everybody(0));
  fake.put({ ...gateway, gateway: server("hub", { port: 9 }) });
  fake.store.mark = mark;
  expect(await changed(3)).toEqual([]);
  expect(fake.store.all).toBe(1);

  // Another controller changes it.
  fake.put(gateway);
  fake.store.mark = "of another";
  expect(await changed(1)).toEqual(everybody(1));
  expect(await changed(99)).toEqual([]);
  expect(fake.store.all).toBe(2);
});
