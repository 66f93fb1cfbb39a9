import { expect, test } from "vitest";
import { freshStore } from "../../support/control-plane/test-store.ts";
import type { EventRecord } from "../../../src/controller/events/records.ts";
import { HISTORY_ROWS } from "../../../src/controller/events/store.ts";

function event(uid: string, change: Partial<EventRecord> = {}): EventRecord {
  return {
    uid,
    eventType: "Node Connect",
    level: "INFO",
    message: `message ${uid}`,
    timestamp: 1000,
    receivedTime: 1000.5,
    details: { a: [1] },
    state: "UNKNOWN",
    subject: "Node",
    orgId: "org",
    nodeId: "n1",
    nodeName: "edge",
    domain: "net.example",
    fqdn: "edge.net.example",
    origin: "control-plane",
    ...change,
  };
}

const page = { sort: { by: "timestamp", order: "asc" }, limit: 100, offset: 0 } as const;

test("events come back as they went in, filtered, sorted and paged", async () => {
  const { events } = await freshStore();
  const all = [
    event("1"),
    event("2", { nodeId: "n2", level: "ERROR", timestamp: 2000 }),
    event("3", { eventType: "Node Disconnect", level: "WARNING", timestamp: 3000.25, message: "100% 'lost'" }),
  ];
  for (const item of all) await events.add(item);
  const uids = async (filter: object) => (await events.find({ ...page, ...filter })).items.map(({ uid }) => uid);
  expect(await events.find(page)).toEqual({ total: 3, items: all });
  expect(await uids({ nodeIds: ["n2", "n9"] })).toEqual(["2"]);
  expect(await uids({ nodeIds: [] })).toEqual([]);
  expect(await uids({ eventTypes: ["Node Connect"] })).toEqual(["1", "2"]);
  expect(await uids({ levels: ["ERROR", "WARNING"] })).toEqual(["2", "3"]);
  expect(await uids({ subjects: ["Node"] })).toEqual(["1", "2", "3"]);
  expect(await uids({ subjects: ["Order"] })).toEqual([]);
  expect(await uids({ from: 2000, to: 3000 })).toEqual(["2"]);
  expect(await uids({ text: "% 'LOST" })).toEqual(["3"]);
  expect(await uids({ text: "_" })).toEqual([]);
  expect(await uids({ sort: { by: "timestamp", order: "desc" } })).toEqual(["3", "2", "1"]);
  expect(await uids({ sort: { by: "level", order: "desc" } })).toEqual(["2", "3", "1"]);
  expect(await events.find({ ...page, limit: 1, offset: 1 })).toEqual({ total: 3, items: [all[1]] });
  expect(await events.get("n1", "2")).toBeUndefined();
});

test("what is past its time goes", async () => {
  const store = await freshStore();
  const day = 24 * 3600;
  await store.events.add(event("old", { receivedTime: 0 }));
  await store.events.add(event("new", { receivedTime: 40 * day }));
  const audit = { nodeId: "n1", fqdn: "f", category: "c", value: "v", origin: "node" } as const;
  for (const timestamp of [0, 40 * day]) await store.audits.add({ ...audit, timestamp });
  await store.alerts.open(event("old", { timestamp: 0 }));
  expect(await store.alerts.all(day)).toHaveLength(1);
  expect(await store.alerts.all(day + 1)).toEqual([]);
  await store.prune(41 * day);
  expect((await store.events.find(page)).items.map(({ uid }) => uid)).toEqual(["new"]);
  const audits = await store.audits.find({ nodeIds: ["n1"], limit: 10, offset: 0 });
  expect(audits.items.map(({ timestamp }) => timestamp)).toEqual([40 * day]);
  expect(await store.alerts.close("n1", "Node Connect")).toBe(false);
});

test("one node holds a share of the history and no more", async () => {
  const store = await freshStore();
  const fill = async (table: string, columns: string, values: string): Promise<void> => {
    await store.query(
      `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 25000)
       INSERT INTO ${table} (${columns}) SELECT ${values} FROM n`,
    );
  };
  await store.events.add(event("mine", { nodeId: "n1" }));
  await store.audits.add({ nodeId: "n1", fqdn: "f", category: "c", value: "mine", timestamp: 1, origin: "node" });
  await fill(
    "events",
    "uid, node_id, node_name, fqdn, domain, org, event_type, level, message, state, subject, timestamp, received_time, details",
    "'e' || i, 'n2', 'n', 'f', 'd', 'o', 't', 'INFO', '', 'UNKNOWN', 'Node', -i, 1, '{}'",
  );
  await fill("audits", "node_id, fqdn, category, value, timestamp", "'n2', 'f', 'c', 'v' || i, i");
  await store.events.trim("n2", 25_000);
  await store.audits.trim("n2", 25_000);
  const kept = await store.events.find({ ...page, nodeIds: ["n2"], from: -25_000 });
  expect([kept.total, kept.items[0]?.uid]).toEqual([20_000, "e25000"]);
  expect(await store.events.get("n1", "mine")).toBeDefined();
  expect(await store.query("SELECT node_id, count(*) AS kept FROM audits GROUP BY node_id ORDER BY node_id")).toEqual([
    { node_id: "n1", kept: 1 },
    { node_id: "n2", kept: 20_000 },
  ]);
});

test("what nodes send pushes out nothing that the control plane wrote", async () => {
  const store = await freshStore();
  const own = { nodeId: "n2", fqdn: "f", category: "c", value: "own", timestamp: 1, origin: "control-plane" } as const;
  await store.events.add(event("own", { nodeId: "n2", receivedTime: 1 }));
  await store.audits.add(own);
  const send = async (round: number, count: number): Promise<void> => {
    for (const [table, columns, values] of [
      [
        "events",
        "uid, node_id, node_name, fqdn, domain, org, event_type, level, message, state, subject, timestamp, received_time, details, origin",
        `'${round} ' || i, 'n2', 'n', 'f', 'd', 'o', 't', 'INFO', '', 'UNKNOWN', 'Node', 1, 1, '{}', 'node'`,
      ],
      ["audits", "node_id, fqdn, category, value, timestamp, origin", "'n2', 'f', 'c', 'v', 1, 'node'"],
    ]) {
      await store.query(
        `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${count})
         INSERT INTO ${table} (${columns}) SELECT ${values} FROM n`,
      );
    }
  };
  // By their numbers more than all records together may be, though never at once: each time the share is trimmed.
  for (const round of [0, 1]) {
    for (const table of ["events", "audits"]) {
      await store.query(`UPDATE ${table} SET seq = seq + ${HISTORY_ROWS} WHERE origin = 'node'`);
    }
    await send(round, 25_000);
    await store.events.trim("n2", 25_000);
    await store.audits.trim("n2", 25_000);
  }
  await store.prune(2);
  expect(await store.events.get("n2", "own")).toMatchObject({ origin: "control-plane" });
  const audits = await store.audits.find({ nodeIds: ["n2"], limit: 1, offset: 20_000 });
  expect([audits.total, audits.items]).toEqual([20_001, [own]]);
});

test("an open alert stays as it is until it is closed or past its day", async () => {
  const { alerts } = await freshStore();
  const day = 24 * 3600;
  await alerts.open(event("1", { timestamp: 100 }));
  await alerts.open(event("2", { timestamp: 200 }));
  expect((await alerts.ofNode("n1", 200)).map(({ uid }) => uid)).toEqual(["1"]);
  await alerts.open(event("3", { timestamp: 200 + day }));
  expect((await alerts.ofNode("n1", 200 + day)).map(({ uid }) => uid)).toEqual(["3"]);
  expect(await alerts.close("n1", "Node Connect")).toBe(true);
  expect(await alerts.close("n1", "Node Connect")).toBe(false);
});

test("work that throws leaves nothing", async () => {
  const store = await freshStore();
  const work = store.transact(async (tx) => {
    await tx.events.add(event("1"));
    throw new Error("stop");
  });
  await expect(work).rejects.toThrow("stop");
  expect((await store.events.find(page)).total).toBe(0);
});

test("a row that does not hold what it should is a fault that names the column", async () => {
  const store = await freshStore();
  await store.events.add(event("1"));
  await store.query("UPDATE events SET level = 'LOUD'");
  await expect(store.events.find(page)).rejects.toThrow("level");
});
