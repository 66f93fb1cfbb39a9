import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { createWhole } from "../../../../src/host/files/new-database.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const fill = (sql: DatabaseSync): void =>
  sql.exec("CREATE TABLE t(a); INSERT INTO t VALUES (1); PRAGMA user_version=3");

test("a new database is complete without its log, and nothing remains beside it", () => {
  const dir = tempDir();
  const path = join(dir, "state.db");
  writeFileSync(`${path}.0123456789ab.tmp-wal`, "of an earlier attempt");
  createWhole(path, fill);
  expect(readdirSync(dir)).toEqual(["state.db"]);
  const sql = new DatabaseSync(path, { readOnly: true });
  expect(sql.prepare("SELECT a FROM t").get()).toEqual({ a: 1 });
  expect(sql.prepare("PRAGMA user_version").get()).toEqual({ user_version: 3 });
  sql.close();
});

test("one created by another process meanwhile stays", () => {
  const path = join(tempDir(), "state.db");
  createWhole(path, (sql) => {
    createWhole(path, (other) => other.exec("CREATE TABLE theirs(a)"));
    fill(sql);
  });
  const sql = new DatabaseSync(path, { readOnly: true });
  expect(sql.prepare("SELECT name FROM sqlite_schema").all()).toEqual([{ name: "theirs" }]);
  sql.close();
});

test("a failure half-way leaves nothing", () => {
  const dir = tempDir();
  expect(() => createWhole(join(dir, "state.db"), (sql) => sql.exec("nonsense"))).toThrow(/syntax error/);
  expect(readdirSync(dir)).toEqual([]);
  expect(() => createWhole(join(dir, "nowhere", "state.db"), fill)).toThrow(/unable to open/);
  expect(existsSync(join(dir, "nowhere"))).toBe(false);
});
