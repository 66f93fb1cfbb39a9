import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { openStores, type Stores } from "../../../src/controller/stores.ts";
import { temporaryDirectory } from "../../support/control-plane/running-controller.ts";
import type { EventRecord } from "../../../src/controller/events/records.ts";

async function freshStore(): Promise<Stores> {
  const store = openStores(join(await temporaryDirectory(), "controller.db"));
  onTestFinished(() => store.close());
  return store;
}

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
  for (const item of all) events.add(item);
  const uids = (filter: object) => events.find({ ...page, ...filter }).items.map(({ uid }) => uid);
  expect(events.find(page)).toEqual({ total: 3, items: all });
  expect(uids({ nodeIds: ["n2", "n9"] })).toEqual(["2"]);
  expect(uids({ nodeIds: [] })).toEqual([]);
  expect(uids({ eventTypes: ["Node Connect"] })).toEqual(["1", "2"]);
  expect(uids({ levels: ["ERROR", "WARNING"] })).toEqual(["2", "3"]);
  expect(uids({ subjects: ["Node"] })).toEqual(["1", "2", "3"]);
  expect(uids({ subjects: ["Order"] })).toEqual([]);
  expect(uids({ from: 2000, to: 3000 })).toEqual(["2"]);
  expect(uids({ text: "% 'LOST" })).toEqual(["3"]);
  expect(uids({ text: "_" })).toEqual([]);
  expect(uids({ sort: { by: "timestamp", order: "desc" } })).toEqual(["3", "2", "1"]);
  expect(uids({ sort: { by: "level", order: "desc" } })).toEqual(["2", "3", "1"]);
  expect(events.find({ ...page, limit: 1, offset: 1 })).toEqual({ total: 3, items: [all[1]] });
  expect(events.get("n1", "2")).toBeUndefined();
});

test("what is past its time goes", async () => {
  const store = await freshStore();
  const day = 24 * 3600;
  store.events.add(event("old", { receivedTime: 0 }));
  store.events.add(event("new", { receivedTime: 40 * day }));
  const audit = { nodeId: "n1", fqdn: "f", category: "c", value: "v", origin: "node" } as const;
  for (const timestamp of [0, 40 * day]) store.audits.add({ ...audit, timestamp });
  store.alerts.open(event("old", { timestamp: 0 }));
  expect(store.alerts.all(day)).toHaveLength(1);
  expect(store.alerts.all(day + 1)).toEqual([]);
  store.prune(41 * day);
  expect(store.events.find(page).items.map(({ uid }) => uid)).toEqual(["new"]);
  const audits = store.audits.find({ nodeIds: ["n1"], limit: 10, offset: 0 });
  expect(audits.items.map(({ timestamp }) => timestamp)).toEqual([40 * day]);
  expect(store.alerts.close("n1", "Node Connect")).toBe(false);
});

test("one node holds a share of the history and no more", async () => {
  const store = await freshStore();
  const fill = (table: string, columns: string, values: string): void => {
    store.sql.exec(
      `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 25000)
       INSERT INTO ${table} (${columns}) SELECT ${values} FROM n`,
    );
  };
  store.events.add(event("mine", { nodeId: "n1" }));
  store.audits.add({ nodeId: "n1", fqdn: "f", category: "c", value: "mine", timestamp: 1, origin: "node" });
  fill(
    "events",
    "uid, node_id, node_name, fqdn, domain, org, event_type, level, message, state, subject, timestamp, received_time, details",
    "'e' || i, 'n2', 'n', 'f', 'd', 'o', 't', 'INFO', '', 'UNKNOWN', 'Node', -i, 1, '{}'",
  );
  fill("audits", "node_id, fqdn, category, value, timestamp", "'n2', 'f', 'c', 'v' || i, i");
  store.events.trim("n2", 25_000);
  store.audits.trim("n2", 25_000);
  const kept = store.events.find({ ...page, nodeIds: ["n2"], from: -25_000 });
  expect([kept.total, kept.items[0]?.uid]).toEqual([20_000, "e25000"]);
  expect(store.events.get("n1", "mine")).toBeDefined();
  const left = store.sql.prepare("SELECT count(*) AS left FROM audits WHERE node_id = ?");
  expect([left.get("n1")?.["left"], left.get("n2")?.["left"]]).toEqual([1, 20_000]);
});

test("what nodes send pushes out nothing that the control plane wrote", async () => {
  const store = await freshStore();
  const own = { nodeId: "n2", fqdn: "f", category: "c", value: "own", timestamp: 1, origin: "control-plane" } as const;
  store.events.add(event("own", { nodeId: "n2", receivedTime: 1 }));
  store.audits.add(own);
  const send = (count: number): void => {
    for (const [table, columns, values] of [
      [
        "events",
        "uid, node_id, node_name, fqdn, domain, org, event_type, level, message, state, subject, timestamp, received_time, details, origin",
        "hex(randomblob(8)), 'n2', 'n', 'f', 'd', 'o', 't', 'INFO', '', 'UNKNOWN', 'Node', 1, 1, '{}', 'node'",
      ],
      ["audits", "node_id, fqdn, category, value, timestamp, origin", "'n2', 'f', 'c', 'v', 1, 'node'"],
    ]) {
      store.sql.exec(
        `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ${count})
         INSERT INTO ${table} (${columns}) SELECT ${values} FROM n`,
      );
    }
  };
  // More than all records together may be, though never at once: each time the share is trimmed.
  for (let round = 0; round < 9; round += 1) {
    send(25_000);
    store.events.trim("n2", 25_000);
    store.audits.trim("n2", 25_000);
  }
  store.prune(2);
  expect(store.events.get("n2", "own")).toMatchObject({ origin: "control-plane" });
  const audits = store.audits.find({ nodeIds: ["n2"], limit: 1, offset: 20_000 });
  expect([audits.total, audits.items]).toEqual([20_001, [own]]);
});

test("an open alert stays as it is until it is closed or past its day", async () => {
  const { alerts } = await freshStore();
  const day = 24 * 3600;
  alerts.open(event("1", { timestamp: 100 }));
  alerts.open(event("2", { timestamp: 200 }));
  expect(alerts.ofNode("n1", 200).map(({ uid }) => uid)).toEqual(["1"]);
  alerts.open(event("3", { timestamp: 200 + day }));
  expect(alerts.ofNode("n1", 200 + day).map(({ uid }) => uid)).toEqual(["3"]);
  expect(alerts.close("n1", "Node Connect")).toBe(true);
  expect(alerts.close("n1", "Node Connect")).toBe(false);
});

test("work that throws leaves nothing, also inside other work", async () => {
  const store = await freshStore();
  expect(() =>
    store.atomic(() => {
      store.atomic(() => store.events.add(event("1")));
      throw new Error("stop");
    }),
  ).toThrow("stop");
  expect([store.events.find(page).total, store.failures()]).toEqual([0, 1]);
});

test("a row that does not hold what it should is a fault that names the column", async () => {
  const store = await freshStore();
  store.events.add(event("1"));
  store.sql.exec("UPDATE events SET level = 'LOUD'");
  expect(() => store.events.find(page)).toThrow("level");
});
