import { cp, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { z } from "zod";
import type { Controller } from "../../../src/controller/controller.ts";
import { sha256 } from "../../../src/controller/access/admin-key.ts";
import { rootLogger } from "../../../src/host/log.ts";
import { peekClaims } from "../../../src/protocol/channel/jws.ts";
import { until } from "../../support/control-plane/node-client.ts";
import {
  addNode,
  clockWith,
  runController,
  temporaryDirectory,
} from "../../support/control-plane/running-controller.ts";

async function eventTypes(controller: Controller, uid: string): Promise<readonly string[]> {
  const filter = { nodeIds: [uid], sort: { by: "timestamp", order: "asc" }, limit: 1000, offset: 0 } as const;
  return (await controller.events.find(filter)).items.map(({ eventType }) => eventType);
}

test("the first start makes secrets that only their owner can read, and no secret is in the database", async () => {
  const dataDir = await temporaryDirectory();
  const controller = await runController({ dataDir });
  const key = (await readFile(controller.adminKeyPath, "utf8")).trim();
  expect(key).toMatch(/^[A-Za-z0-9_-]{43}$/);
  await controller.close();
  const secrets = [
    controller.adminKeyPath,
    ...["root", "signing", "api-token"].map((name) => join(dataDir, "keys", `${name}.jwk`)),
  ];
  for (const path of secrets) expect((await stat(path)).mode & 0o777).toBe(0o600);
  const database = await readFile(join(dataDir, "controller.db"), "latin1");
  expect(database).toContain(sha256(key));
  expect(database).not.toContain(key);
});

test("a restart keeps nodes, organization and keys, and everybody is offline at first", async () => {
  const dataDir = await temporaryDirectory();
  const first = await runController({ dataDir, domain: "net.example" });
  const node = await addNode(first, "edge");
  await first.nodes.setTag(node.uid, "site", "north", "test");
  await node.connect();
  const before = await first.nodes.get(node.uid);
  const port = new URL(first.url).port;
  await first.close();

  const second = await runController({ dataDir, listen: `127.0.0.1:${port}` });
  const after = await second.nodes.get(node.uid);
  expect(after).toMatchObject({ isOnline: false, org: before?.org, tags: { site: "north" }, domain: "net.example" });
  expect(after?.disconnectTime).toBeGreaterThan(0);
  const session = await node.connect();
  expect(peekClaims("holdfast-server-proof+jwt", session.serverProof).versions).toMatchObject({ keys: 1, node: 2 });
  expect((await second.nodes.get(node.uid))?.isOnline).toBe(true);
});

test("the health check answers while one node floods, and the flood writes few log lines", async () => {
  const lines: string[] = [];
  const { log } = rootLogger({ level: "info", destination: { write: (line) => void lines.push(line) } });
  const controller = await runController({ log });
  const session = await (await addNode(controller, "flood")).connect();
  const before = lines.length;
  const begun = performance.now();
  const { socket } = session.raw;
  const bad = JSON.stringify({ jsonrpc: "2.0", method: "heartbeat", params: { seq: "x".repeat(100) } });
  const keepSending = (): void => {
    if (socket.readyState !== socket.OPEN) return;
    for (let n = 0; n < 500 && socket.bufferedAmount < 4_000_000; n += 1) socket.send(bad);
    setImmediate(keepSending);
  };
  keepSending();
  // Once reading is paused, what the node sends stays with the node.
  await until(() => socket.bufferedAmount > 1_000_000, "a pause");
  for (let n = 0; n < 5; n += 1) expect((await fetch(`${controller.url}/healthz`)).status).toBe(200);
  const written = lines.slice(before);
  const failed = written.filter((line) => line.includes("message failed"));
  expect(failed.length).toBeGreaterThan(0);
  // Each kind of failure is logged once a minute.
  expect(failed.length).toBeLessThanOrEqual(1 + Math.ceil((performance.now() - begun) / 60_000));
  expect(written.join("")).not.toContain("    at ");
  expect(written.length).toBeLessThan(10);
  socket.terminate();
});

test("failed authentications are counted and limited, and what holds is taken all the same", async () => {
  const lines: string[] = [];
  const { log } = rootLogger({ level: "info", destination: { write: (line) => void lines.push(line) } });
  const controller = await runController({ log });
  const ask = (path: string, authorization?: string, method = "GET") =>
    fetch(`${controller.url}${path}`, { method, headers: authorization === undefined ? {} : { authorization } });
  // Asking which credentials are wanted is no failure.
  for (let n = 0; n < 70; n += 1) expect((await ask("/node")).status).toBe(401);
  const doors = [() => ask("/node", "wrong"), () => ask("/node", "Bearer a.b.c")];
  const statuses: number[] = [];
  for (let n = 0; n < 64; n += 1) statuses.push((await doors[n % 2]?.())?.status ?? 0);
  expect(statuses.slice(0, 59)).toEqual(Array.from({ length: 59 }, () => 401));
  expect(statuses.slice(-2)).toEqual([429, 429]);
  const refused = await ask("/node", "wrong");
  expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
  expect(await refused.json()).toMatchObject({ code: "too-many-failures" });
  const token = await fetch(`${controller.url}/oauth/token`, {
    method: "POST",
    body: new URLSearchParams({ grant_type: "client_credentials", client_id: "x", client_secret: "y" }),
  });
  expect(token.status).toBe(429);
  const exchange = await fetch(`${controller.url}/v2/auth/token`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ clientId: "x", secret: "y" }),
  });
  expect(exchange.status).toBe(429);
  const key = (await readFile(controller.adminKeyPath, "utf8")).trim();
  expect((await ask("/node", key)).status).toBe(200);
  const logged = lines.filter((line) => line.includes('"authentication"'));
  expect(logged.length).toBeGreaterThan(0);
  expect(logged.length).toBeLessThan(20);
});

test("closing lets go of every socket and of the data directory", async () => {
  const dataDir = await temporaryDirectory();
  const controller = await runController({ dataDir });
  const session = await (await addNode(controller, "edge")).connect();
  await controller.close();
  expect(await until(() => session.raw.closed?.code)).toBe(1001);
  await (await runController({ dataDir })).close();
});

test("two controllers do not share a data directory", async () => {
  const dataDir = await temporaryDirectory();
  await runController({ dataDir });
  await expect(runController({ dataDir })).rejects.toMatchObject({ code: "state-locked" });
});

test("a domain is for good, a damaged key is named, a taken port is named", async () => {
  const dataDir = await temporaryDirectory();
  const controller = await runController({ dataDir, domain: "net.example" });
  const { host } = new URL(controller.url);
  await expect(runController({ listen: host })).rejects.toMatchObject({ code: "listen-failed" });
  await controller.close();
  await expect(runController({ dataDir, domain: "other.example" })).rejects.toMatchObject({ code: "invalid-settings" });
  await writeFile(join(dataDir, "keys", "signing.jwk"), "{}");
  await expect(runController({ dataDir })).rejects.toThrow("signing.jwk");
});

test("who cannot have the port or the certificate leaves nothing behind", async () => {
  const directory = await temporaryDirectory();
  const dataDir = join(directory, "data");
  const { host } = new URL((await runController()).url);
  await expect(runController({ dataDir, listen: host })).rejects.toMatchObject({ code: "listen-failed" });
  const files = { tlsCert: join(directory, "no-cert.pem"), tlsKey: join(directory, "no-key.pem") };
  await expect(runController({ dataDir, ...files })).rejects.toThrow("no-cert.pem");
  expect(await readdir(directory)).toEqual([]);
});

test("a damaged database is named and left as it is, and a controller with a good one is the same as before", async () => {
  const dataDir = await temporaryDirectory();
  const controller = await runController({ dataDir });
  const node = await addNode(controller, "edge");
  await controller.close();
  const path = join(dataDir, "controller.db");
  const good = await readFile(path);
  const bad = "not a database at all, but long enough to be read as one".repeat(100);
  await writeFile(path, bad);
  await expect(runController({ dataDir })).rejects.toMatchObject({
    code: "state-damaged",
    message: expect.stringContaining(path) as string,
  });
  expect(await readFile(path, "utf8")).toBe(bad);
  await writeFile(path, "");
  await expect(runController({ dataDir })).rejects.toMatchObject({ code: "state-damaged" });
  await writeFile(path, good);
  expect((await (await runController({ dataDir })).nodes.get(node.uid))?.name).toBe("edge");
});

test("who does not come back after a crash or a restart is missed, who does is not", async () => {
  const dataDir = await temporaryDirectory();
  const first = await runController({ dataDir });
  const [back, away, never] = [
    await addNode(first, "back"),
    await addNode(first, "away"),
    await addNode(first, "never"),
  ];
  for (const node of [back, away]) await node.connect();
  const crashed = await temporaryDirectory();
  await cp(dataDir, crashed, { recursive: true, filter: (path) => !path.endsWith(".sock") });
  const port = new URL(first.url).port;
  await first.close();

  for (const directory of [crashed, dataDir]) {
    // Housekeeping comes often, so that the test need not wait for it.
    const clock = clockWith(5000, 10);
    const again = await runController({ dataDir: directory, listen: `127.0.0.1:${port}`, clock, heartbeatSeconds: 10 });
    const types = async (uid: string): Promise<readonly string[]> => (await eventTypes(again, uid)).slice(2);
    back.n += 10;
    await back.connect();
    expect(await types(away.uid)).toEqual(["Node Connect"]);
    clock.advance(29_000);
    await back.connect();
    clock.advance(1500);
    await until(async () => (await types(away.uid)).length === 2, "disconnect");
    expect(await types(away.uid)).toEqual(["Node Connect", "Node Disconnect"]);
    expect((await again.alerts.find()).map(({ nodeId }) => nodeId)).toEqual([away.uid]);
    const { disconnectTime = 0, lastConnect = 0 } = (await again.nodes.get(away.uid)) ?? {};
    expect(disconnectTime).toBeGreaterThanOrEqual(Math.floor(lastConnect / 1000));
    expect(await types(back.uid)).not.toContain("Node Disconnect");
    expect(await types(never.uid)).toEqual([]);
    clock.advance(60_000);
    await again.close();
    const third = await runController({ dataDir: directory, clock, heartbeatSeconds: 10 });
    expect((await eventTypes(third, away.uid)).slice(2)).toEqual(["Node Connect", "Node Disconnect"]);
    await third.close();
  }
});

test("the controller takes no tag and no section that a node would refuse for its keys", async () => {
  const controller = await runController();
  const { uid } = await addNode(controller, "edge");
  const { fqdn } = await controller.clusters.create({ name: "pair" }, "test");
  for (const name of ["__proto__", "constructor", "prototype"]) {
    const refusal = { code: "invalid-body", message: expect.stringContaining(name) as unknown };
    const body: unknown = JSON.parse(`{"a":[{"${name}":1}]}`);
    const section = z.looseObject({}).parse(body);
    await expect(controller.nodes.setTag(uid, name, "x", "test")).rejects.toMatchObject(refusal);
    await expect(controller.clusters.setTag(fqdn, name, "x", "test")).rejects.toMatchObject(refusal);
    await expect(controller.config.setSection(uid, "exec", "test", () => ({ body: section }))).rejects.toMatchObject(
      refusal,
    );
  }
  expect(await controller.nodes.get(uid)).toMatchObject({ tags: {}, config: {} });
});

test("a dismissed alert is an event that names who did it", async () => {
  const controller = await runController({ domain: "net.example" });
  const { uid } = await addNode(controller, "edge");
  expect(await controller.alerts.dismiss(uid, "Node Disconnect", "bob")).toBe(false);
  const session = await (await addNode(controller, "away")).connect();
  session.raw.socket.terminate();
  const away = (await controller.nodes.all()).find(({ name }) => name === "away")?.uid ?? "";
  await until(async () => ((await controller.alerts.find(away)).length > 0 ? true : undefined));
  expect(await controller.alerts.dismiss(away, "Node Disconnect", "bob")).toBe(true);
  const filter = { eventTypes: ["Configuration Change"], sort: { by: "timestamp", order: "asc" } } as const;
  const { items: changes } = await controller.events.find({ ...filter, limit: 100, offset: 0 });
  expect(changes.filter(({ message }) => /Policy|Alert/.test(message))).toMatchObject([
    { message: "Alert Node Disconnect dismissed", details: { user: "bob" }, nodeId: away },
  ]);
});

test("the network of a cluster reaches its members with who changed it, and nobody else", async () => {
  const controller = await runController();
  const [member, other] = [await addNode(controller, "edge"), await addNode(controller, "alone")];
  const { fqdn } = await controller.clusters.create({ name: "pair" }, "test");
  await controller.nodes.update(member.uid, { cluster: fqdn }, "test");
  const session = await member.connect();
  const network = { darkMode: true };
  expect((await controller.config.setClusterSection(fqdn, "network", "ann", () => network)).config).toEqual({
    network,
  });
  const document = (await session.fetchDocument(controller.url, "cluster")) ?? "";
  expect(peekClaims("holdfast-document+jwt", document).body).toMatchObject({ config: { network } });
  const stranger = await other.connect();
  await expect(stranger.peer.request("document.get", { name: "cluster", have: 0 })).rejects.toMatchObject({
    code: "not-found",
  });
  expect((await controller.config.setClusterSection(fqdn, "network", "ann", () => undefined)).config).toEqual({});
  const refusal = { code: "not-supported" };
  await expect(controller.config.setClusterSection(fqdn, "gateway", "ann", () => ({}))).rejects.toMatchObject(refusal);
  const filter = { eventTypes: ["Configuration Change"], sort: { by: "timestamp", order: "asc" } } as const;
  const { items: changes } = await controller.events.find({ ...filter, limit: 100, offset: 0 });
  expect(changes.filter(({ message }) => message.includes("network"))).toMatchObject([
    { message: `Configuration of network of cluster ${fqdn} changed`, details: { user: "ann" }, fqdn },
    { message: `Configuration of network of cluster ${fqdn} removed`, details: { user: "ann" }, fqdn },
  ]);
});

test("a change of a container is told by its name, and by nothing that is in it", async () => {
  const controller = await runController();
  const { uid } = await addNode(controller, "edge");
  const container = { id: "a", name: "api", variables: [{ name: "TOKEN", value: "hush" }] };
  const summary = "container api added (privileged)";
  await controller.config.setSection(uid, "exec", "ann", () => ({ body: { commands: [container] }, summary }));
  const filter = { eventTypes: ["Configuration Change"], sort: { by: "timestamp", order: "asc" } } as const;
  const { items } = await controller.events.find({ ...filter, limit: 100, offset: 0 });
  expect(items.at(-1)).toMatchObject({
    message: "Configuration of exec changed: container api added (privileged)",
    details: { user: "ann" },
  });
  expect(JSON.stringify([items, await controller.events.audits({ limit: 100, offset: 0 })])).not.toContain("hush");
});

test("what changes nothing leaves no event and no audit, and a change names only what changed", async () => {
  const controller = await runController();
  const { uid } = await addNode(controller, "edge");
  const { fqdn } = await controller.clusters.create({ name: "pair" }, "test");
  const trail = async (): Promise<unknown> => {
    const filter = { sort: { by: "timestamp", order: "asc" }, limit: 1000, offset: 0 } as const;
    return [
      (await controller.events.find(filter)).items.map(({ message }) => message),
      await controller.events.audits({ nodeIds: [uid], limit: 100, offset: 0 }),
    ];
  };
  const changes = [
    () => controller.config.setSection(uid, "gateway", "test", () => ({ body: { enabled: true, paths: [{ id: 1 }] } })),
    () => controller.nodes.setTag(uid, "site", "north", "test"),
    () => controller.nodes.setLifecycleState(uid, "maintenance", "test"),
    () => controller.nodes.update(uid, { state: "INACTIVE", cluster: fqdn }, "test"),
    () => controller.clusters.setTag(fqdn, "site", "north", "test"),
    () => controller.config.setClusterSection(fqdn, "network", "test", () => ({ darkMode: true })),
    () => controller.nodes.update(uid, { cluster: null }, "test"),
  ];
  for (const change of changes) {
    const before = await trail();
    await change();
    const after = await trail();
    expect(after).not.toEqual(before);
    await change();
    expect(await trail()).toEqual(after);
  }
  const settled = await trail();
  await controller.config.setSection(uid, "snmp", "test", () => ({ body: undefined }));
  await controller.nodes.setTag(uid, "none", undefined, "test");
  await controller.clusters.setTag(fqdn, "none", undefined, "test");
  expect(await trail()).toEqual(settled);

  await controller.nodes.update(uid, { state: "INACTIVE", cluster: fqdn }, "test");
  expect(JSON.stringify(await trail())).toContain(`Node updated: cluster ${fqdn}`);
});

test("a mock answers with the examples, for any credential, and without a trace of what was sent", async () => {
  const controller = await runController({ isMock: true });
  const ask = (method: string, path: string, body?: object) =>
    fetch(`${controller.url}${path}`, {
      method,
      headers: { authorization: "anybody:anything", "content-type": "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  const statements = [{ effect: "allow", actions: ["nodes::read"] }];
  const created = await ask("POST", "/v2/policy", { name: "sent", statements, resources: ["*"] });
  expect([created.status, await created.json()]).toMatchObject([200, { name: "operators" }]);
  expect(await (await ask("GET", "/v2/policy")).json()).toMatchObject([{ name: "operators" }]);
  expect(await (await ask("GET", "/api/node")).json()).toMatchObject([{ fqdn: "edge-1.example.net" }]);
  expect((await ask("PUT", "/v2/policy/operators", { name: "sent" })).status).toBe(422);
  expect((await fetch(`${controller.url}/node`)).status).toBe(401);
  expect(
    (await controller.events.find({ limit: 1, offset: 0, sort: { by: "timestamp", order: "asc" } })).items,
  ).toEqual([]);
});
