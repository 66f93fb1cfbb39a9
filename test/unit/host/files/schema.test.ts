import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { openDatabase, type DatabaseOptions } from "../../../../src/host/files/database.ts";
import { oldestReader, schemaVersion, type Migration } from "../../../../src/host/files/schema.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const FIRST = "CREATE TABLE a (id TEXT PRIMARY KEY, x INTEGER NOT NULL) STRICT";
const MORE = "ALTER TABLE a ADD COLUMN y TEXT; CREATE TABLE b (z INTEGER) STRICT";
const OTHERWISE: Migration = {
  sql: "CREATE TABLE c (w TEXT) STRICT; ALTER TABLE a DROP COLUMN x; ALTER TABLE a ADD COLUMN v TEXT NOT NULL DEFAULT 'v'",
  isBreaking: true,
};

const open = (path: string, migrations: readonly Migration[], onNewer?: DatabaseOptions["onNewer"]) =>
  openDatabase(path, { migrations, exclusive: true, ...(onNewer === undefined ? {} : { onNewer }) });

test.each<[readonly Migration[], number]>([
  [[FIRST], 1],
  [[FIRST, MORE], 1],
  [[FIRST, OTHERWISE], 2],
  [[FIRST, OTHERWISE, MORE], 2],
  [[FIRST, OTHERWISE, MORE, OTHERWISE], 4],
])("the oldest reader of %j is of version %i", (migrations, version) => {
  expect(oldestReader(migrations)).toBe(version);
});

describe("a schema of a newer version", () => {
  test("that only adds is used unchanged, back and forth", () => {
    const path = join(tempDir(), "s.db");
    const newer = open(path, [FIRST, MORE]).sql;
    newer.exec("INSERT INTO a VALUES ('1', 1, 'y'); INSERT INTO b VALUES (5)");
    newer.close();
    const older = open(path, [FIRST]);
    expect(older).toMatchObject({ isPersistent: true, damagedCopy: undefined, newerCopy: undefined, isNew: false });
    expect(schemaVersion(older.sql)).toBe(2);
    older.sql.exec("INSERT INTO a (id, x) VALUES ('2', 2)");
    older.sql.close();
    const { sql } = open(path, [FIRST, MORE]);
    expect(sql.prepare("SELECT * FROM a ORDER BY id").all()).toEqual([
      { id: "1", x: 1, y: "y" },
      { id: "2", x: 2, y: null },
    ]);
    expect(sql.prepare("SELECT * FROM b").all()).toEqual([{ z: 5 }]);
    sql.close();
  });

  test("that is incompatible is refused by default, with the reason, and not changed", () => {
    const path = join(tempDir(), "s.db");
    open(path, [FIRST, OTHERWISE]).sql.close();
    const before = readFileSync(path);
    const message = "(schema 2 that programs from schema 2 on can use; this program knows 1)";
    expect(() => open(path, [FIRST])).toThrow(
      expect.objectContaining({ code: "state-too-new", message: expect.stringContaining(message) as string }),
    );
    expect(readFileSync(path)).toEqual(before);
  });

  test("without a stated compatibility is not used by older versions", () => {
    const path = join(tempDir(), "s.db");
    const { sql } = open(path, [FIRST]);
    sql.exec("DROP TABLE holdfast_schema; PRAGMA user_version=2");
    sql.close();
    expect(() => open(path, [FIRST])).toThrow(expect.objectContaining({ code: "state-too-new" }));
  });

  test("that is incompatible is set aside, and every table that fits is copied", () => {
    const path = join(tempDir(), "s.db");
    const TWO = `${FIRST}; CREATE TABLE kept (id TEXT PRIMARY KEY) STRICT`;
    const newer = open(path, [TWO, OTHERWISE]).sql;
    newer.exec("INSERT INTO a (id) VALUES ('1'); INSERT INTO kept VALUES ('k')");
    newer.close();
    const older = open(path, [TWO], "begin-anew");
    expect(older).toMatchObject({ isPersistent: true, damagedCopy: undefined, newerCopy: `${path}.newer` });
    expect(schemaVersion(older.sql)).toBe(1);
    // A required column does not exist any more, so no row of `a` fits.
    expect(older.sql.prepare("SELECT * FROM a").all()).toEqual([]);
    expect(older.sql.prepare("SELECT * FROM kept").all()).toEqual([{ id: "k" }]);
    older.sql.close();
    expect(existsSync(`${path}.newer`)).toBe(true);
    const again = open(path, [TWO], "begin-anew");
    expect(again).toMatchObject({ newerCopy: undefined, isNew: false });
    again.sql.close();
  });
});
