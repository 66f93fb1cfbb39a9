import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import { Spool, spoolMigration, streamBounds, type Batch } from "../../../../src/agent/telemetry/spool.ts";
import { openDatabase } from "../../../../src/host/files/database.ts";
import { tempDir } from "../../../support/temp-dir.ts";

function memory() {
  const sql = new DatabaseSync(":memory:");
  sql.exec(spoolMigration);
  const faults: unknown[] = [];
  const open = () => new Spool(sql, (error) => void faults.push(error));
  return { sql, faults, open, spool: open() };
}

function batchOf(spool: Spool, name: "events" | "metrics" = "events"): Batch {
  const batch = spool.batch(name);
  if (batch === undefined) throw new Error("nothing waits");
  return batch;
}

const lastOf = ({ first, records }: Batch): number => first + records.length - 1;

test("writes nothing that is not urgent before a flush, not even in a spool that has just been opened", () => {
  const { sql, spool } = memory();
  const changes = () => sql.prepare("SELECT total_changes() AS n").get()?.["n"];
  const before = changes();
  spool.append("metrics", { t: 1 });
  spool.append("flows", { t: 1 });
  expect(changes()).toBe(before);
  spool.flush();
  expect(changes()).not.toBe(before);
});

describe("numbers", () => {
  test("rise by one from one, and are acknowledged in parts", () => {
    const { spool } = memory();
    for (let i = 1; i <= 5; i += 1) spool.append("events", { i });
    const batch = batchOf(spool);
    expect(batch).toEqual({ stream: "events", first: 1, records: [1, 2, 3, 4, 5].map((i) => ({ i })), dropped: 0 });
    spool.acknowledge(batch, 3);
    expect(batchOf(spool)).toMatchObject({ first: 4, records: [{ i: 4 }, { i: 5 }] });
    spool.acknowledge(batchOf(spool), 5);
    expect(spool.batch("events")).toBeUndefined();
  });

  test("are never reused after a restart or a kill, whether records were written or not", () => {
    const path = join(tempDir(), "state.db");
    const used = new Set<number>();
    for (let run = 0; run < 5; run += 1) {
      const { sql } = openDatabase(path, { migrations: [spoolMigration], exclusive: false });
      const spool = new Spool(sql, (error) => {
        throw error;
      });
      for (const name of ["events", "metrics"] as const) {
        const key = name === "events" ? 0 : 1e9;
        spool.append(name, { run });
        for (let batch = spool.batch(name); batch !== undefined; batch = spool.batch(name)) {
          for (const [i, record] of batch.records.entries()) {
            expect(used.has(key + batch.first + i) && record["run"] === run).toBe(false);
            used.add(key + batch.first + i);
          }
          spool.acknowledge(batch, lastOf(batch));
        }
      }
      if (run % 2 === 0) sql.close(); // otherwise as a kill leaves it
    }
    expect(used.size).toBe(10);
  });

  test("with a gap end a batch", () => {
    const { spool, open } = memory();
    spool.append("events", { a: 1 });
    const later = open();
    later.append("events", { a: 2 });
    const first = batchOf(later);
    expect(first.records).toEqual([{ a: 1 }]);
    later.acknowledge(first, lastOf(first));
    const second = batchOf(later);
    expect(second.records).toEqual([{ a: 2 }]);
    expect(second.first).toBeGreaterThan(first.first + 1);
  });
});

describe("durability", () => {
  test("urgent records survive a kill, others from the flush on", () => {
    const { spool, open } = memory();
    spool.append("events", { urgent: true });
    spool.append("metrics", { t: 1 });
    expect(open().batch("metrics")).toBeUndefined();
    spool.flush();
    expect(open().batch("events")?.records).toEqual([{ urgent: true }]);
    expect(open().batch("metrics")?.records).toEqual([{ t: 1 }]);
  });

  test("acknowledged records are deleted from the disk", () => {
    const { spool, open, sql } = memory();
    spool.append("events", { a: 1 });
    spool.acknowledge(batchOf(spool), 1);
    expect(open().batch("events")).toBeUndefined();
    expect(sql.prepare("SELECT count(*) AS n FROM spool_record").get()).toEqual({ n: 0 });
  });

  test("a full disk costs no record while the program runs", () => {
    const path = join(tempDir(), "state.db");
    const { sql } = openDatabase(path, { migrations: [spoolMigration], exclusive: false });
    const faults: unknown[] = [];
    const spool = new Spool(sql, (error) => void faults.push(error));
    sql.exec("PRAGMA max_page_count=8");
    for (let i = 0; i < 200; i += 1) spool.append("events", { i, filling: "x".repeat(1000) });
    expect(faults.length).toBeGreaterThan(0);
    expect(spool.status().events).toEqual({ queued: 200, dropped: 0 });
    sql.exec("PRAGMA max_page_count=100000");
    spool.flush();
    const later = new Spool(sql, () => undefined);
    expect(later.status().events.queued).toBe(200);
  });
});

describe("limits", () => {
  test("drop the oldest and count it, over restarts too", () => {
    const { spool, open } = memory();
    const { maxRecords } = streamBounds.events;
    for (let i = 0; i < maxRecords + 10; i += 1) spool.append("events", { i });
    expect(spool.status().events).toEqual({ queued: maxRecords, dropped: 10 });
    const batch = batchOf(spool);
    expect(batch).toMatchObject({ first: 11, dropped: 10 });
    spool.acknowledge(batch, lastOf(batch));
    expect(batchOf(spool).dropped).toBe(0);
    expect(open().status().events.dropped).toBe(10);
  });

  test("apply to the size too", () => {
    const { spool } = memory();
    for (let i = 0; i < 100; i += 1) spool.append("events", { text: "x".repeat(200_000) });
    const { queued, dropped } = spool.status().events;
    expect(queued * 200_000).toBeLessThanOrEqual(streamBounds.events.maxBytes);
    expect(queued + dropped).toBe(100);
  });

  test("of one message keep a batch small", () => {
    const { spool } = memory();
    for (let i = 0; i < 900; i += 1) spool.append("events", { i });
    expect(batchOf(spool).records).toHaveLength(500);
    const large = memory().spool;
    for (let i = 0; i < 9; i += 1) large.append("events", { text: "x".repeat(100_000) });
    expect(batchOf(large).records).toHaveLength(2);
  });
});

test("drops and counts a record too large for any message, without delaying others", () => {
  const { spool } = memory();
  spool.append("events", { text: "x".repeat(2_000_000) });
  spool.append("events", { small: true });
  expect(spool.status().events).toEqual({ queued: 1, dropped: 1 });
  expect(batchOf(spool)).toMatchObject({ first: 1, records: [{ small: true }], dropped: 1 });
});

describe("a control plane that counts ahead of us", () => {
  test("gets the records again under new numbers", () => {
    const { spool, open } = memory();
    for (let i = 1; i <= 3; i += 1) spool.append("events", { i });
    spool.append("metrics", { t: 1 });
    spool.acknowledge(batchOf(spool), 500_000);
    expect(batchOf(spool)).toMatchObject({ first: 500_001, records: [{ i: 1 }, { i: 2 }, { i: 3 }] });
    expect(open().batch("events")).toMatchObject({ first: 500_001, records: [{ i: 1 }, { i: 2 }, { i: 3 }] });
    spool.append("events", { i: 4 });
    expect(batchOf(spool).records).toHaveLength(4);
    spool.acknowledge(batchOf(spool), 500_004);
    expect(spool.batch("events")).toBeUndefined();
    expect(batchOf(spool, "metrics").first).toBe(1);
  });
});

test("an answer that accepts nothing leaves the drops to be reported again", () => {
  const { spool } = memory();
  for (let i = 0; i <= streamBounds.events.maxRecords; i += 1) spool.append("events", { i });
  const batch = batchOf(spool);
  spool.acknowledge(batch, 0);
  expect(batchOf(spool)).toEqual(batch);
});

describe("many records that are not urgent", () => {
  const many = (from: number, count: number) => Array.from({ length: count }, (_, i) => ({ i: from + i }));
  const { maxRecords } = streamBounds.flows;
  const rows = (sql: DatabaseSync) =>
    sql.prepare("SELECT count(*) AS n, min(seq) AS first, max(seq) AS last FROM spool_record").get();

  test("reach the disk only in a flush, and the count of dropped ones with them", () => {
    const { sql, spool, open } = memory();
    spool.appendAll("flows", many(0, 10));
    spool.flush();
    const changes = () => sql.prepare("SELECT total_changes() AS n").get()?.["n"];
    const before = changes();
    for (let round = 0; round < 3; round += 1) spool.appendAll("flows", many(10 + round * 20_000, 20_000));
    expect(spool.status().flows).toEqual({ queued: maxRecords, dropped: 10_010 });
    expect(changes()).toBe(before);
    spool.flush();
    expect(rows(sql)).toEqual({ n: maxRecords, first: 10_011, last: 60_010 });
    expect(open().status().flows).toEqual({ queued: maxRecords, dropped: 10_010 });
    expect(open().batch("flows")).toMatchObject({ first: 10_011, records: { length: 500 } });
  });

  test("are written in pieces, complete and in order", () => {
    const { sql, spool, open } = memory();
    spool.appendAll("flows", many(0, 2500));
    expect(spool.flush(1000)).toBe(true);
    expect(rows(sql)).toEqual({ n: 1000, first: 1, last: 1000 });
    spool.append("flows", { i: 2500 });
    expect([spool.flush(1000), spool.flush(1000), spool.flush(1000)]).toEqual([true, false, false]);
    const later = open();
    const found: unknown[] = [];
    for (let batch = later.batch("flows"); batch !== undefined; batch = later.batch("flows")) {
      found.push(...batch.records.map(({ i }) => i));
      later.acknowledge(batch, lastOf(batch));
    }
    expect(found).toEqual(many(0, 2501).map(({ i }) => i));
  });

  test("wait for a later flush when the disk refuses, and no piece is retried at once", () => {
    const path = join(tempDir(), "state.db");
    const { sql } = openDatabase(path, { migrations: [spoolMigration], exclusive: false });
    const spool = new Spool(sql, () => undefined);
    sql.exec("PRAGMA max_page_count=8");
    spool.appendAll("flows", many(0, 5000));
    expect(spool.flush(1000)).toBe(false);
    sql.exec("PRAGMA max_page_count=100000");
    expect(spool.flush()).toBe(false);
    expect(rows(sql)).toEqual({ n: 5000, first: 1, last: 5000 });
  });

  test("that were dropped in flight are acknowledged without harm", () => {
    const { spool, sql } = memory();
    spool.appendAll("flows", many(0, 500));
    spool.flush();
    const batch = spool.batch("flows");
    spool.appendAll("flows", many(500, maxRecords));
    if (batch === undefined) throw new Error("nothing waits");
    spool.acknowledge(batch, lastOf(batch));
    expect(spool.batch("flows")).toMatchObject({ first: 501, dropped: 500 });
    spool.flush();
    expect(rows(sql)).toEqual({ n: maxRecords, first: 501, last: 500 + maxRecords });
  });
});
