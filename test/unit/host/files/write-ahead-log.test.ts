import { copyFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import { openDatabase } from "../../../../src/host/files/database.ts";
import { isLogDamaged } from "../../../../src/host/files/write-ahead-log.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const PAGE = 4096;
const FRAME = PAGE + 24;
const frameAt = (i: number): number => 32 + i * FRAME;
const TRANSACTIONS = 12;
const options = { migrations: ["CREATE TABLE a (x INTEGER) STRICT"], exclusive: true };

/** A database as left by a killed process: every transaction in the log, one frame each. */
function crashed(prepare: (sql: DatabaseSync) => void = () => undefined) {
  const [dir, live] = [tempDir(), join(tempDir(), "live.db")];
  const path = join(dir, "s.db");
  openDatabase(live, options).sql.close();
  const { sql } = openDatabase(live, options);
  prepare(sql);
  for (let i = 0; i < TRANSACTIONS; i += 1) sql.prepare("INSERT INTO a VALUES (?)").run(i);
  for (const suffix of ["", "-wal"]) copyFileSync(live + suffix, path + suffix);
  sql.close();
  return { path, log: readFileSync(`${path}-wal`) };
}

function spoilt(log: Buffer, from: number, length: number, how: (byte: number) => number = (byte) => ~byte): Buffer {
  const copy = Buffer.from(log);
  for (let at = from; at < Math.min(copy.length, from + length); at += 1) copy[at] = how(copy[at] ?? 0);
  return copy;
}

const zero = (): number => 0;

describe("a write-ahead log", () => {
  test("that is complete or absent is not damaged", () => {
    const { log } = crashed();
    expect(log.length).toBe(frameAt(TRANSACTIONS));
    for (const good of [log, Buffer.alloc(0), log.subarray(0, 32), Buffer.alloc(log.length)])
      expect(isLogDamaged(good)).toBe(false);
  });

  test("restarted over an older one is not damaged", () => {
    const { log } = crashed((sql) => {
      for (let i = 0; i < 40; i += 1) sql.prepare("INSERT INTO a VALUES (?)").run(i);
      sql.exec("PRAGMA wal_checkpoint(RESTART)");
    });
    expect(log.length).toBeGreaterThan(frameAt(TRANSACTIONS + 20));
    expect(isLogDamaged(log)).toBe(false);
    expect(isLogDamaged(spoilt(log, frameAt(3) + 24, 1))).toBe(true);
  });

  test.each(Array.from({ length: TRANSACTIONS - 2 }, (_, i) => i))(
    "with damage to frame %i before others is damaged",
    (i) => {
      const { log } = crashed();
      expect(isLogDamaged(spoilt(log, frameAt(i) + 24 + 100, 1)), "a byte of the page").toBe(true);
      expect(isLogDamaged(spoilt(log, frameAt(i) + 16, 8)), "its checksum").toBe(true);
      if (i < TRANSACTIONS - 3) expect(isLogDamaged(spoilt(log, frameAt(i), FRAME, zero)), "all of it").toBe(true);
    },
  );

  test("with an invalid header before its frames is damaged", () => {
    const { log } = crashed();
    for (let at = 0; at < 32; at += 1) expect(isLogDamaged(spoilt(log, at, 1)), `byte ${at}`).toBe(true);
    expect(isLogDamaged(spoilt(log, 0, log.length, () => 0xa5))).toBe(true);
  });

  test("with an unwritten end, as after a power cut, is not damaged", () => {
    const { log } = crashed();
    const last = frameAt(TRANSACTIONS - 1);
    for (const end of [last, last + 10, last + 24, log.length - 1]) {
      expect(isLogDamaged(log.subarray(0, end)), `cut at ${end}`).toBe(false);
      expect(isLogDamaged(spoilt(log, end, log.length, zero)), `zeros from ${end}`).toBe(false);
    }
  });

  test("with a transaction of many pages at its end, some of them unwritten, is not damaged", () => {
    const { log } = crashed((sql) => sql.exec("CREATE TABLE b (x TEXT); PRAGMA wal_checkpoint(RESTART)"));
    const { log: large } = crashed((sql) => {
      sql.exec("CREATE TABLE b (x TEXT)");
      sql.prepare("INSERT INTO b VALUES (?)").run("x".repeat(20 * PAGE));
    });
    expect(large.length).toBeGreaterThan(log.length);
    const end = large.length - TRANSACTIONS * FRAME;
    for (let i = 4; frameAt(i + 1) < end; i += 1) {
      expect(isLogDamaged(spoilt(large.subarray(0, end), frameAt(i), FRAME, zero)), `frame ${i}`).toBe(false);
    }
  });
});

describe("a database with a damaged write-ahead log", () => {
  test("opens with the earlier data, reports it, and keeps a copy of the log", () => {
    const { path, log } = crashed();
    const damaged = spoilt(log, frameAt(5) + 24, 1);
    writeFileSync(`${path}-wal`, damaged);
    const { sql, ...rest } = openDatabase(path, options);
    expect(rest).toEqual({
      isPersistent: true,
      damagedCopy: undefined,
      newerCopy: undefined,
      isLogDamaged: true,
      isNew: false,
    });
    expect(sql.prepare("SELECT count(*) AS n FROM a").get()).toEqual({ n: 5 });
    sql.close();
    expect(readFileSync(`${path}-wal.damaged`).equals(damaged)).toBe(true);
    const again = openDatabase(path, options);
    expect(again.isLogDamaged).toBe(false);
    again.sql.close();
  });

  test("is left unchanged if damage is refused", () => {
    const { path, log } = crashed();
    const damaged = spoilt(log, frameAt(5) + 24, 1);
    writeFileSync(`${path}-wal`, damaged);
    expect(() => openDatabase(path, { ...options, onDamage: "refuse" })).toThrow(
      expect.objectContaining({ code: "state-damaged", details: { path: `${path}-wal` } }),
    );
    expect(readFileSync(`${path}-wal`).equals(damaged)).toBe(true);
    expect(existsSync(`${path}-wal.damaged`)).toBe(false);
  });
});
