import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { pino } from "pino";
import { expect, test } from "vitest";
import { HANDSHAKE_LIMITS, parseMessage } from "../../../../src/protocol/channel/envelope.ts";
import { peekClaims, verifyJws } from "../../../../src/protocol/channel/jws.ts";
import { KeysEnvelopes, keySetOf } from "../../../../src/protocol/channel/keys-chain.ts";
import { controlMethods } from "../../../../src/protocol/channel/methods.ts";
import { CONTROL_PLANE_EVENTS } from "../../../../src/controller/events/control-plane-events.ts";
import type { Controller } from "../../../../src/controller/controller.ts";
import { FLAPPING_WINDOW_MS } from "../../../../src/controller/channel/flapping.ts";
import {
  nonce,
  RawSocket,
  until,
  type TestNode,
  type TestSession,
} from "../../../support/control-plane/node-client.ts";
import {
  addNode,
  clockWith,
  MovableClock,
  runController,
  slowStore,
} from "../../../support/control-plane/running-controller.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { untilStill } from "../../../support/until-still.ts";

async function eventTypes(controller: Controller, uid: string): Promise<readonly string[]> {
  const filter = { nodeIds: [uid], sort: { by: "timestamp", order: "asc" }, limit: 1000, offset: 0 } as const;
  return (await controller.events.find(filter)).items.map(({ eventType }) => eventType);
}

/** Cuts the session of a node and waits until the disconnect is stored. */
async function disconnect(controller: Controller, node: TestNode, session: TestSession): Promise<void> {
  await session.cut();
  await until(async () => (await controller.nodes.get(node.uid))?.isOnline === false);
  // Changes nothing, in the node's turn: after the disconnect.
  await controller.nodes.setLock(node.uid, undefined, "test");
}

test("a newer session of a node replaces the older one, which is no disconnect", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const older = await node.connect();
  const newer = await node.connect();
  expect(await older.raw.closeCode()).toBe(4002);
  expect(newer.sid).not.toBe(older.sid);
  expect((await controller.nodes.get(node.uid))?.isOnline).toBe(true);
  expect(await eventTypes(controller, node.uid)).not.toContain("Node Disconnect");
});

test("a node that cannot be stored hears that it is not to blame, and an older session of it goes on", async () => {
  const dataDir = tempDir();
  await (await runController({ dataDir })).close();
  const database = new DatabaseSync(join(dataDir, "controller.db"));
  const refuses = (what: string, when: string): void => {
    const isTagged = `EXISTS (SELECT 1 FROM nodes WHERE tags LIKE '%${when}%')`;
    const raises = "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END";
    database.exec(`CREATE TRIGGER ${when} BEFORE ${what} AND ${isTagged} ${raises}`);
  };
  refuses("UPDATE ON nodes WHEN OLD.last_connect <> NEW.last_connect", "first");
  refuses("INSERT ON events WHEN NEW.event_type = 'Node Connect'", "second");
  database.close();
  const controller = await runController({ dataDir });
  const node = await addNode(controller, "edge");
  const older = await node.connect();
  for (const when of ["first", "second"]) {
    await controller.nodes.setTag(node.uid, "full", when, "test");
    const refused = await node.connect();
    expect(await refused.raw.closeCode()).toBe(1011);
    // It is proved before, or the node would not believe the code.
    expect(peekClaims("holdfast-server-proof+jwt", refused.serverProof)).toMatchObject({ aud: node.uid });
    expect(older.raw.closed).toBeUndefined();
    expect((await controller.nodes.get(node.uid))?.isOnline).toBe(true);
  }
});

test("failures of the store are logged once a minute, however often a node causes them", async () => {
  const dataDir = tempDir();
  await (await runController({ dataDir })).close();
  const database = new DatabaseSync(join(dataDir, "controller.db"));
  const refuses = (name: string, what: string): void => {
    const raises = "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END";
    database.exec(`CREATE TRIGGER ${name} BEFORE ${what} ${raises}`);
  };
  refuses("registers", "INSERT ON nodes WHEN NEW.name = 'refused'");
  refuses("connects", "UPDATE ON nodes WHEN OLD.last_connect <> NEW.last_connect");
  refuses("disconnects", "UPDATE ON nodes WHEN OLD.is_online = 1 AND NEW.is_online = 0");
  database.close();
  const lines: string[] = [];
  const log = pino({ level: "error" }, { write: (line) => void lines.push(line) });
  const of = (message: string): number => lines.filter((line) => line.includes(message)).length;
  let sweeps = 0;
  const clock = new (class extends MovableClock {
    override after(ms: number, run: () => void): () => void {
      if (ms === 5000) sweeps += 1;
      return super.after(ms === 5000 ? 10 : ms, run);
    }
  })();
  const controller = await runController({ dataDir, log, clock });
  const [node, other] = [await addNode(controller, "edge"), await addNode(controller, "other")];
  for (let i = 0; i < 2; i += 1) await expect(addNode(controller, "refused")).rejects.toThrow("500");
  expect(of("request failed")).toBe(1);
  const kept = await node.connect();
  for (let i = 0; i < 3; i += 1) expect(await (await node.connect()).raw.closeCode()).toBe(1011);
  expect(of("cannot store session")).toBe(1);
  await (await other.connect()).cut();
  await until(() => of("cannot store disconnect") > 0);
  const earlier = sweeps;
  await until(() => sweeps > earlier + 3);
  expect(of("cannot store disconnect")).toBe(1);
  expect(kept.raw.closed).toBeUndefined();
});

test("a disconnect is told, dated and alerted until the node is back", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  await disconnect(controller, node, session);
  expect((await controller.nodes.get(node.uid))?.disconnectTime).toBeCloseTo(Date.now() / 1000, -2);
  expect((await controller.alerts.find(node.uid)).map(({ eventType }) => eventType)).toEqual(["Node Disconnect"]);
  await node.connect();
  expect(await controller.alerts.find(node.uid)).toEqual([]);
  expect(await eventTypes(controller, node.uid)).toEqual([
    "Configuration Change",
    "Configuration Change",
    "Node Connect",
    "Node Disconnect",
    "Node Connect",
  ]);
});

test("a deleted node is told so with a signature over its nonce, also when it comes back", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const cnonce = nonce();
  const session = await node.connect({ claims: { cnonce } });
  const envelopes = KeysEnvelopes.parse(JSON.parse((await session.fetchDocument(controller.url, "keys")) ?? "[]"));
  const signing = await keySetOf(peekClaims("holdfast-keys+jwt", envelopes[0]?.jws ?? "").signing);
  await controller.nodes.delete(node.uid, "test");
  expect(await session.raw.closeCode()).toBe(4003);
  const notice = await verifyJws("holdfast-deleted+jwt", session.deletedNotices[0] ?? "", signing);
  expect(notice).toMatchObject({ iss: controller.url, aud: node.uid, nonce: cnonce });
  expect(await controller.nodes.get(node.uid)).toBeUndefined();
  expect(await eventTypes(controller, node.uid)).toContain("Node Delete");

  const again = nonce();
  const raw = new RawSocket(controller.url);
  const proof = await node.proof(await raw.challenge(), { cnonce: again });
  raw.socket.send(
    JSON.stringify({ jsonrpc: "2.0", id: 1, method: "session.hello", params: { proof, reportedVersion: 0 } }),
  );
  expect(await raw.closeCode()).toBe(4003);
  const message = parseMessage(raw.frames[1] ?? "{}", HANDSHAKE_LIMITS);
  if (message.kind !== "notification") throw new Error("no notification");
  const { jws } = controlMethods["session.deleted"].params.parse(message.params);
  expect((await verifyJws("holdfast-deleted+jwt", jws, signing)).nonce).toBe(again);
});

test("a counter that does not rise is reported, and on repetition the identity is held", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  await node.connect();
  await node.connect({ claims: { n: 1 } });
  expect((await eventTypes(controller, node.uid)).filter((type) => type === "Identity Shared")).toHaveLength(1);
  const session = await node.connect({ claims: { n: 1 } });
  const signal = new AbortController().signal;
  const trigger = { event: "tg-ping", body: {}, wait: true, user: "test", deadlineMs: 1000 };
  await expect(controller.triggers.run(node.uid, trigger, { signal })).rejects.toMatchObject({
    code: "busy",
    message: expect.stringContaining(`DELETE /v2/alert/${node.uid}/Identity%20Shared`) as unknown,
  });
  await expect(session.peer.request("document.get", { name: "node", have: 0 })).rejects.toMatchObject({ code: "busy" });
  await expect(session.peer.request("registry.token", { repository: "a" })).rejects.toMatchObject({ code: "busy" });

  expect(session.changed).toEqual([]);
  expect(await controller.alerts.dismiss(node.uid, "Identity Shared", "ann")).toBe(true);
  await until(() => session.changed.some(({ name }) => name === "node"));
  expect(await session.fetchDocument(controller.url, "node")).toBeDefined();
  await expect(session.peer.request("registry.token", { repository: "a" })).rejects.toMatchObject({
    code: "not-configured",
  });
});

test("a shadow report needs the stored base, and everything replaces it", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  const report = (version: number, base: number, set: Record<string, string | number>, unset: string[] = []) =>
    session.peer.request("shadow.report", { version, base, set, unset });
  expect(await report(1, 0, { memory: 512, cores: "4" })).toEqual({ version: 1 });
  expect(await report(2, 1, { memory: 256 }, ["cores"])).toEqual({ version: 2 });
  expect((await controller.nodes.get(node.uid))?.reported).toEqual({ memory: 256 });
  await expect(report(4, 3, { memory: 1 })).rejects.toMatchObject({ code: "out-of-sync", details: { version: 2 } });
  await expect(report(2, 2, { memory: 1 })).rejects.toMatchObject({ code: "invalid-body" });
  const big = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`k${i}`, "x".repeat(4000)]));
  await expect(report(3, 2, big)).rejects.toMatchObject({ code: "invalid-body" });
  expect((await controller.nodes.get(node.uid))?.reported).toEqual({ memory: 256 });
  expect(await report(9, 0, { a: "b" })).toEqual({ version: 9 });
  expect((await controller.nodes.get(node.uid))?.reported).toEqual({ a: "b" });
  expect((await node.connect()).hello?.reportedVersion).toBe(9);
});

const EVENT = {
  eventType: "DNS Resolution",
  level: "ERROR",
  message: "m",
  timestamp: 1,
  state: "EXCEEDED",
  details: {},
};

test("telemetry is stored once however often it is sent, and a bad record blocks nothing", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  const minute = Math.floor(Date.now() / 60_000) * 60 - 600;
  const push = (
    first: number,
    records: Record<string, unknown>[],
    stream: "events" | "metrics" | "audits" = "events",
  ) => session.peer.request("telemetry.push", { stream, first, records });
  const numbered = (n: number) => ({ ...EVENT, message: `m${n}`, uid: "forged", nodeId: "forged" });
  expect(await push(1, [numbered(1), numbered(2)])).toEqual({ last: 2 });
  expect(await push(1, [numbered(1), numbered(2), numbered(3)])).toEqual({ last: 3 });
  expect(await push(2, [numbered(2)])).toEqual({ last: 3 });
  expect(await push(4, [{ ...EVENT, level: "LOUD" }, numbered(5)])).toEqual({ last: 5 });
  expect(await push(10, [numbered(10)])).toEqual({ last: 10 });
  const filter = {
    eventTypes: ["DNS Resolution"],
    sort: { by: "timestamp", order: "asc" },
    limit: 10,
    offset: 0,
  } as const;
  const { items } = await controller.events.find(filter);
  expect(items.map(({ message }) => message)).toEqual(["m1", "m2", "m3", "m5", "m10"]);
  expect(new Set(items.map(({ nodeId }) => nodeId))).toEqual(new Set([node.uid]));
  expect(await controller.events.get(node.uid, items[0]?.uid ?? "")).toEqual(items[0]);

  expect(
    await push(
      1,
      [
        { t: minute + 59, m: { cpu: 0.5 } },
        { t: minute + 60, m: { cpu: "?" } },
      ],
      "metrics",
    ),
  ).toEqual({ last: 2 });
  expect(await controller.telemetry.metrics(node.uid, 0, minute)).toEqual([{ t: minute, m: { cpu: 0.5 } }]);
  expect(await push(1, [{ category: "Node Update", value: "v", timestamp: 5, extra: 1 }], "audits")).toEqual({
    last: 1,
  });
  expect((await controller.events.audits({ nodeIds: [node.uid], limit: 100, offset: 0 })).items).toMatchObject([
    { category: "Node Update", value: "v", timestamp: 5 },
  ]);
});

test("metrics from outside the time they are kept for are passed over", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  const now = Math.floor(Date.now() / 60_000) * 60;
  const day = 24 * 3600;
  const times = [0, now - 91 * day, now - 89 * day, now, now + day - 60, now + day + 120, Number.MAX_SAFE_INTEGER];
  const records = times.map((t) => ({ t, m: { cpu: 1 } }));
  const pushed = await session.peer.request("telemetry.push", { stream: "metrics", first: 1, records });
  expect(pushed).toEqual({ last: times.length });
  const kept = (await controller.telemetry.metrics(node.uid, 0, Number.MAX_SAFE_INTEGER)).map(({ t }) => t);
  expect(kept).toEqual([now - 89 * day, now, now + day - 60]);
});

test("a node cannot speak in the control plane's name, nor clear its alerts", async () => {
  const lines: string[] = [];
  const log = pino({}, { write: (text: string) => void lines.push(text) });
  const controller = await runController({ log });
  const node = await addNode(controller, "edge");
  await node.connect();
  const session = await node.connect({ claims: { n: 1 } });
  const before = await eventTypes(controller, node.uid);
  expect(CONTROL_PLANE_EVENTS).toContain("Identity Shared");
  const late = (eventType: string, state: string) => ({ ...EVENT, timestamp: 4e9, eventType, state });
  const records = [
    ...CONTROL_PLANE_EVENTS.map((eventType) => late(eventType, "CLEARED")),
    late("Signature Refused", "EXCEEDED"),
  ];
  expect(await session.peer.request("telemetry.push", { stream: "events", first: 1, records })).toEqual({
    last: records.length,
  });
  expect((await eventTypes(controller, node.uid)).slice(before.length)).toEqual(["Signature Refused"]);
  expect((await controller.alerts.find(node.uid)).map(({ eventType }) => eventType)).toContain("Identity Shared");
  expect(lines.filter((line) => line.includes('"kind":"reserved-event"')).length).toBeGreaterThan(0);
});

test("heartbeats are seen at once and kept over a disconnect", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  const heartbeat = {
    seq: 1,
    at: 5,
    uptimeSeconds: 1,
    load: 0.5,
    memory: { totalBytes: 10, availableBytes: 5 },
    disk: { totalBytes: 10, freeBytes: 5, usedRatio: 0.5 },
    overlay: "DOWN",
    queue: { records: 0, dropped: 0 },
  } as const;
  session.peer.notify("heartbeat", heartbeat);
  await until(async () => (await controller.nodes.get(node.uid))?.heartbeat?.seq === 1);
  await disconnect(controller, node, session);
  expect((await controller.nodes.get(node.uid))?.heartbeat).toMatchObject(heartbeat);
});

test("a message that is no message is answered and the session goes on", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  const answers = session.raw.frames.length;
  session.raw.socket.send("{");
  session.raw.socket.send('{"jsonrpc":"2.0","id":900,"method":"no.such","params":{}}');
  session.raw.socket.send('{"jsonrpc":"2.0","id":901,"method":"shadow.report","params":{"version":"x"}}');
  const frames = await until(() => session.raw.frames.length === answers + 3 && session.raw.frames.slice(answers));
  const answered = frames.map((frame) => parseMessage(frame, HANDSHAKE_LIMITS));
  const codes = answered.map((message) => (message.kind === "failure" ? message.error.code : 0));
  expect(codes).toEqual([-32700, -32601, -32602]);
  expect((await controller.nodes.get(node.uid))?.isOnline).toBe(true);
});

test("a frame over 1 MiB closes the session with 1009, a binary one with 1003", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  session.raw.socket.send("x".repeat(1024 * 1024 + 1));
  expect(await session.raw.closeCode()).toBe(1009);
  const next = await node.connect();
  next.raw.socket.send(Buffer.from("{}"), { binary: true });
  expect(await next.raw.closeCode()).toBe(1003);
});

test("a node silent for three heartbeats is dropped", async () => {
  const clock = new MovableClock();
  const controller = await runController({ clock, heartbeatSeconds: 10 });
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  clock.advance(31_000);
  expect(await session.raw.closeCode()).toBe(1006);
  await until(async () => (await controller.nodes.get(node.uid))?.isOnline === false);
});

test("ten reconnects in five minutes are flapping", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  for (let i = 0; i < 11; i += 1) {
    await disconnect(controller, node, await node.connect());
  }
  expect((await eventTypes(controller, node.uid)).filter((type) => type === "Connection Flapping")).toHaveLength(1);
});

test("ten sessions in five minutes that each replace the one before are flapping, and no longer recorded", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  for (let i = 0; i < 15; i += 1) await node.connect();
  const types = await eventTypes(controller, node.uid);
  expect(types.filter((type) => type === "Connection Flapping")).toHaveLength(1);
  expect(types.filter((type) => type === "Node Connect")).toHaveLength(11);
});

/** Connects and cuts a node until its connection counts as flapping, and leaves it offline. */
async function makeFlap(controller: Controller, node: TestNode, cycles = 11): Promise<void> {
  for (let i = 0; i < cycles; i += 1) {
    await disconnect(controller, node, await node.connect());
  }
}

test("while a connection flaps its connects and disconnects are not stored one by one", async () => {
  const clock = clockWith(5000, 10);
  const controller = await runController({ clock });
  const node = await addNode(controller, "edge");
  await makeFlap(controller, node);
  const before = await eventTypes(controller, node.uid);
  await makeFlap(controller, node, 5);
  expect(await eventTypes(controller, node.uid)).toEqual(before);
  expect(before.at(-1)).toBe("Connection Flapping");
  expect((await controller.alerts.find(node.uid)).map(({ eventType }) => eventType)).toEqual(["Connection Flapping"]);
  expect((await controller.nodes.get(node.uid))?.isOnline).toBe(false);
});

test("a disconnect that was withheld while a connection flapped is recorded with its time when that is over", async () => {
  const clock = clockWith(5000, 10);
  const controller = await runController({ clock });
  const node = await addNode(controller, "edge");
  await makeFlap(controller, node);
  const { disconnectTime } = (await controller.nodes.get(node.uid)) ?? {};
  const before = (await eventTypes(controller, node.uid)).length;
  clock.advance(FLAPPING_WINDOW_MS + 60_000);
  await until(async () => (await eventTypes(controller, node.uid)).length === before + 2);
  const filter = { nodeIds: [node.uid], sort: { by: "timestamp", order: "asc" }, limit: 1000, offset: 0 } as const;
  const { items } = await controller.events.find(filter);
  const stable = items.find(({ state }) => state === "CLEARED");
  expect(stable).toMatchObject({ eventType: "Connection Flapping", message: "Node no longer reconnects" });
  const disconnects = items.filter(({ eventType }) => eventType === "Node Disconnect");
  expect(disconnects).toHaveLength(11);
  expect(disconnects.at(-1)?.timestamp).toBe(disconnectTime);
  expect((await controller.alerts.find(node.uid)).map(({ eventType }) => eventType)).toEqual(["Node Disconnect"]);
});

test("a connection that flapped and holds is stable, and what comes after is stored again", async () => {
  const clock = clockWith(5000, 10);
  const controller = await runController({ clock, heartbeatSeconds: 300 });
  const node = await addNode(controller, "edge");
  await makeFlap(controller, node);
  const session = await node.connect();
  const before = (await eventTypes(controller, node.uid)).length;
  clock.advance(FLAPPING_WINDOW_MS + 60_000);
  await until(async () => (await eventTypes(controller, node.uid)).length > before);
  expect((await eventTypes(controller, node.uid)).slice(before)).toEqual(["Connection Flapping"]);
  expect(await controller.alerts.find(node.uid)).toEqual([]);
  await session.cut();
  await until(async () => (await controller.alerts.find(node.uid)).length > 0);
  expect((await controller.alerts.find(node.uid)).map(({ eventType }) => eventType)).toEqual(["Node Disconnect"]);
});

test("a connection that flapped when the controller stopped is judged by the next one", async () => {
  const dataDir = tempDir();
  const first = await runController({ dataDir });
  const node = await addNode(first, "edge");
  await makeFlap(first, node);
  await first.close();
  const clock = clockWith(5000, 10);
  const again = await runController({ dataDir, clock });
  expect((await again.alerts.find(node.uid)).map(({ eventType }) => eventType)).toEqual(["Connection Flapping"]);
  clock.advance(FLAPPING_WINDOW_MS + 60_000);
  await until(async () => (await again.alerts.find(node.uid)).some(({ eventType }) => eventType === "Node Disconnect"));
  expect(await again.alerts.find(node.uid)).toHaveLength(1);
});

test("beyond the most sessions a node is sent away until later", async () => {
  const controller = await runController({ maxSessions: 1 });
  const [first, second] = [await addNode(controller, "first"), await addNode(controller, "second")];
  const kept = await first.connect();
  const sent = await second.connect();
  expect(await sent.raw.closeCode()).toBe(4008);
  expect(sent.raw.closed?.reason).toBe("300");
  expect(kept.raw.closed).toBeUndefined();
});

test("nodes that connect at the same moment do not exceed the limit of sessions", async () => {
  const controller = await runController({ maxSessions: 2 });
  const nodes = await Promise.all(Array.from({ length: 8 }, (_, i) => addNode(controller, `edge-${i}`)));
  const hellos = await Promise.all(
    nodes.map(async (node) => {
      const raw = new RawSocket(controller.url);
      const proof = await node.proof(await raw.challenge());
      return { raw, hello: { jsonrpc: "2.0", id: 1, method: "session.hello", params: { proof, reportedVersion: 0 } } };
    }),
  );
  const slow = slowStore(controller, nodes[0]?.uid ?? "");
  for (const { raw, hello } of hellos) raw.socket.send(JSON.stringify(hello));
  await until(() => hellos.every(({ raw }) => raw.frames.length > 1));
  await slow.stop();
  expect((await controller.nodes.all()).filter(({ isOnline }) => isOnline)).toHaveLength(2);
  await until(() => hellos.filter(({ raw }) => raw.closed?.code === 4008).length === 6);
  for (const { raw } of hellos) raw.socket.terminate();
});

test("a document is followed once it can be stored, though a first attempt failed", async () => {
  const dataDir = tempDir();
  await (await runController({ dataDir })).close();
  const database = new DatabaseSync(join(dataDir, "controller.db"));
  const isTagged = "EXISTS (SELECT 1 FROM nodes WHERE tags LIKE '%refused%')";
  database.exec(
    `CREATE TRIGGER full BEFORE INSERT ON documents WHEN NEW.version = 8 AND ${isTagged} BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END`,
  );
  database.close();
  const controller = await runController({ dataDir });
  const node = await addNode(controller, "edge");
  await controller.nodes.setTag(node.uid, "disk", "refused", "test");
  const session = await node.connect();
  const ask = () => session.peer.request("document.get", { name: "domain", have: 7 });
  await expect(ask()).rejects.toThrow();
  await controller.nodes.setTag(node.uid, "disk", undefined, "test");
  expect(await ask()).toMatchObject({ version: 8 });
});

test("a burst of pings is answered, and the session goes on", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  const { socket } = session.raw;
  let pongs = 0;
  socket.on("pong", () => (pongs += 1));
  for (let n = 0; n < 1000; n += 1) socket.ping();
  await until(() => pongs === 1000 || session.raw.closed !== undefined);
  expect([pongs, session.raw.closed]).toEqual([1000, undefined]);
  expect((await controller.nodes.get(node.uid))?.isOnline).toBe(true);
});

test("batches of useless records are charged by their records, and the API answers meanwhile", async () => {
  // Its budget does not recover.
  const clock = new (class extends MovableClock {
    override elapsed(): number {
      return 0;
    }
  })();
  const controller = await runController({ clock });
  const session = await (await addNode(controller, "flood")).connect();
  let answered = 0;
  const records = Array.from({ length: 500 }, () => ({}));
  for (let n = 0; n < 600; n += 1) {
    const push = session.peer.request("telemetry.push", { stream: "events", first: 1 + n * 500, records });
    // While 64 of a node wait for their turn, others are refused, and charged too.
    const count = () => (answered += 1);
    void push.then(count, count);
  }
  await until(() => answered > 0);
  for (let n = 0; n < 20; n += 1) expect((await fetch(`${controller.url}/healthz`)).status).toBe(200);
  await until(() => answered >= 200);
  expect(await untilStill("no more is answered", () => answered)).toBeLessThan(400);
  session.raw.socket.terminate();
});

test("hellos, cuts and the deletion of one node at once end as if one after another", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const connects = Array.from({ length: 6 }, async (_, i) => {
    const session = await node.connect().catch(() => undefined);
    if (i % 2 === 0) await session?.cut();
  });
  await node.connect();
  const deleted = controller.nodes.delete(node.uid, "test");
  await Promise.allSettled([...connects, deleted]);
  await deleted;
  const late = new RawSocket(controller.url);
  const proof = await node.proof(await late.challenge(), { cnonce: nonce() });
  late.socket.send(
    JSON.stringify({ jsonrpc: "2.0", id: 1, method: "session.hello", params: { proof, reportedVersion: 0 } }),
  );
  expect(await late.closeCode()).toBe(4003);
  expect(await controller.nodes.get(node.uid)).toBeUndefined();
  const types = await eventTypes(controller, node.uid);
  // Nothing of a node is recorded once it is deleted.
  expect(types.at(-1)).toBe("Node Delete");
});

test("reports of one session take effect in the order in which they were sent, and too many at once are refused", async () => {
  const controller = await runController();
  const node = await addNode(controller, "edge");
  const session = await node.connect();
  const reports = Array.from({ length: 40 }, (_, i) =>
    session.peer.request("shadow.report", { version: i + 1, base: i, set: { n: i }, unset: [] }),
  );
  expect((await Promise.all(reports)).map(({ version }) => version)).toEqual(reports.map((_, i) => i + 1));
  expect((await controller.nodes.get(node.uid))?.reported).toEqual({ n: 39 });
  const many = Array.from({ length: 400 }, () =>
    session.peer.request("document.applied", {
      name: "node",
      version: 1,
      at: 1,
      durationMs: 1,
      outcome: "converged",
      sections: {},
    }),
  );
  const outcomes = await Promise.allSettled(many);
  const refused = outcomes.filter(({ status }) => status === "rejected");
  expect(refused.length).toBeGreaterThan(0);
  expect(refused.length).toBeLessThan(360);
  for (const outcome of refused) expect(outcome).toMatchObject({ reason: { code: "busy" } });
  expect(session.raw.closed).toBeUndefined();
});
