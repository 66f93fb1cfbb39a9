import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { openDatabase, sqliteCode, transaction, unsynced } from "../../../../src/host/files/database.ts";
import { onSmallDisk } from "../../../support/machine/small-disk.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const migrations = ["CREATE TABLE a (x INTEGER) STRICT"];
const open = (path: string, more: readonly string[] = [], exclusive = false) =>
  openDatabase(path, { migrations: [...migrations, ...more], exclusive });

describe("a database", () => {
  test("keeps what was written, for its owner only, and migrates its schema once", () => {
    const path = join(tempDir(), "s.db");
    const first = open(path);
    expect(first).toMatchObject({ isPersistent: true, damagedCopy: undefined });
    first.sql.exec("INSERT INTO a VALUES (1)");
    first.sql.close();
    expect(statSync(path).mode & 0o777).toBe(0o600);
    for (let i = 0; i < 2; i += 1) {
      const { sql } = open(path, ["ALTER TABLE a ADD COLUMN y TEXT; INSERT INTO a VALUES (2, 'y')"]);
      expect(sql.prepare("SELECT x, y FROM a").all()).toEqual([
        { x: 1, y: null },
        { x: 2, y: "y" },
      ]);
      sql.close();
    }
  });

  test("whose migration fails stays unchanged", () => {
    const path = join(tempDir(), "s.db");
    open(path).sql.close();
    expect(() => open(path, ["CREATE TABLE b (x); INSERT INTO nowhere VALUES (1)"])).toThrow(
      expect.objectContaining({ name: "HostError", code: "database-failed" }),
    );
    const { sql } = open(path, ["CREATE TABLE b (x)"]);
    expect(sql.prepare("PRAGMA user_version").get()).toEqual({ user_version: 2 });
    sql.close();
  });

  test("held by another process is refused", async () => {
    const path = join(tempDir(), "s.db");
    open(path).sql.close();
    const source = new URL("../../../../src/host/files/database.ts", import.meta.url).href;
    const script = `import { openDatabase } from ${JSON.stringify(source)};
      openDatabase(${JSON.stringify(path)}, { migrations: ${JSON.stringify(migrations)}, exclusive: true });
      console.log("held"); setInterval(() => {}, 1000);`;
    const holder = spawn(process.execPath, ["--input-type=module", "-e", script], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    onTestFinished(() => void holder.kill("SIGKILL"));
    await once(holder.stdout, "data");
    expect(() => open(path, [], true)).toThrow(expect.objectContaining({ code: "state-locked", details: { path } }));
    expect(() => open(path, [], true)).toThrow("end that process first");
    holder.kill("SIGKILL");
    await once(holder, "exit");
    open(path, [], true).sql.close();
  });

  test.each([
    ["no database", (path: string) => writeFileSync(path, "x".repeat(5000))],
    ["cut short", (path: string) => truncateSync(path, 5000)],
    [
      "overwritten in its pages",
      (path: string) => {
        const bytes = readFileSync(path);
        bytes.fill(0xff, 4096, 8192);
        writeFileSync(path, bytes);
      },
    ],
    [
      "overwritten in its schema",
      (path: string) => {
        const bytes = readFileSync(path);
        bytes.fill(0xff, 100, 4096);
        writeFileSync(path, bytes);
      },
    ],
  ])("that is %s is set aside and created again", (_what, damage) => {
    const path = join(tempDir(), "s.db");
    const { sql } = open(path);
    for (let i = 0; i < 2000; i += 1) sql.prepare("INSERT INTO a VALUES (?)").run(i);
    sql.close();
    damage(path);
    const { size } = statSync(path);
    const again = open(path);
    expect(again).toMatchObject({ isPersistent: true, damagedCopy: `${path}.damaged` });
    expect(again.sql.prepare("SELECT count(*) AS n FROM a").get()).toEqual({ n: 0 });
    again.sql.close();
    expect(statSync(`${path}.damaged`).size).toBe(size);
  });

  test("that is damaged is left alone on request, with its log", () => {
    const path = join(tempDir(), "s.db");
    open(path).sql.close();
    writeFileSync(path, "x".repeat(5000));
    writeFileSync(`${path}-wal`, "log");
    expect(() => openDatabase(path, { migrations, exclusive: true, onDamage: "refuse" })).toThrow(
      expect.objectContaining({ code: "state-damaged", message: expect.stringContaining(path) as string }),
    );
    expect(readFileSync(path, "utf8")).toBe("x".repeat(5000));
    expect(readFileSync(`${path}-wal`, "utf8")).toBe("log");
    open(path).sql.close();
    expect(readFileSync(`${path}.damaged-wal`, "utf8")).toBe("log");
  });

  test("reports whether it is new", () => {
    const path = join(tempDir(), "s.db");
    const seen = [1, 2].map(() => {
      const { sql, isNew } = open(path);
      sql.close();
      return isNew;
    });
    expect(seen).toEqual([true, false]);
  });

  test("is opened on a full disk unchanged, and a damaged one on a read-only disk in memory", async () => {
    const outcome = await onSmallDisk(`
      const { writeFileSync } = await import("node:fs");
      const path = root + "/s.db";
      const options = { migrations: ["CREATE TABLE a (x TEXT) STRICT"], exclusive: true };
      openDatabase(path, options).sql.close();
      let size = 300_000;
      while (size > 0) try { writeFileSync(root + "/fill" + size, "x".repeat(size)); } catch { size >>= 1; }
      const full = openDatabase(path, options);
      full.sql.close();
      const none = openDatabase(root + "/none.db", options);
      writeFileSync(path, "not a database ".repeat(10));
      makeReadOnly();
      const damaged = openDatabase(path, options);
      return [full, none, damaged].map(({ isPersistent, damagedCopy }) => [isPersistent, damagedCopy === path]);
    `);
    expect(outcome).toEqual([
      [true, false],
      [false, false],
      [false, true],
    ]);
  });

  test("with a directory in its place, or in a missing directory, works in memory", () => {
    const root = tempDir();
    mkdirSync(join(root, "s.db"));
    for (const path of [join(root, "s.db"), join(root, "no/s.db")]) {
      const { sql, isPersistent } = open(path);
      expect(isPersistent).toBe(false);
      sql.exec("INSERT INTO a VALUES (1)");
    }
    expect(existsSync(join(root, "no"))).toBe(false);
  });

  test("on a read-only disk works in memory with its contents, and on a full one refuses writes only", async () => {
    const outcome = await onSmallDisk(`
      const path = root + "/s.db";
      const options = { migrations: ["CREATE TABLE a (x TEXT) STRICT"], exclusive: true };
      const { sql } = openDatabase(path, options);
      sql.exec("INSERT INTO a VALUES ('old')");
      let full;
      try {
        transaction(sql, () => {
          for (let i = 0; i < 1000; i += 1) sql.prepare("INSERT INTO a VALUES (?)").run("x".repeat(1000));
        });
      } catch (error) {
        full = error.errcode;
      }
      const afterFull = [sql.isTransaction, sql.prepare("SELECT count(*) AS n FROM a").get().n];
      sql.close();
      makeReadOnly();
      const memory = openDatabase(path, options);
      memory.sql.exec("INSERT INTO a VALUES ('new')");
      return { full, afterFull, isPersistent: memory.isPersistent, rows: memory.sql.prepare("SELECT x FROM a").all() };
    `);
    expect(outcome).toEqual({
      full: 13,
      afterFull: [false, 1],
      isPersistent: false,
      rows: [{ x: "old" }, { x: "new" }],
    });
  });
});

test("copies an older schema on a read-only disk by the common columns", async () => {
  const outcome = await onSmallDisk(`
    const path = root + "/s.db";
    const first = "CREATE TABLE a (x TEXT, y INTEGER) STRICT; CREATE TABLE z (x TEXT) STRICT";
    const { sql } = openDatabase(path, { migrations: [first], exclusive: true });
    sql.exec("INSERT INTO a VALUES ('kept', 1); INSERT INTO z VALUES ('too')");
    sql.close();
    makeReadOnly();
    const second = "ALTER TABLE a ADD COLUMN b TEXT; ALTER TABLE a DROP COLUMN y; CREATE TABLE b (x TEXT) STRICT";
    const memory = openDatabase(path, { migrations: [first, second], exclusive: true });
    const rows = (table) => memory.sql.prepare("SELECT * FROM " + table).all();
    return [memory.isPersistent, rows("a"), rows("b"), rows("z")];
  `);
  expect(outcome).toEqual([false, [{ x: "kept", b: null }], [], [{ x: "too" }]]);
});

describe("a transaction", () => {
  test("that throws leaves nothing, and the next one works", () => {
    const { sql } = open(join(tempDir(), "s.db"));
    const work = () => {
      sql.exec("INSERT INTO a VALUES (1)");
      throw new TypeError("no");
    };
    expect(() => transaction(sql, work)).toThrow(TypeError);
    expect(transaction(sql, () => sql.prepare("SELECT count(*) AS n FROM a").get())).toEqual({ n: 0 });
  });
});

test("only what a power cut may lose does not wait for the disk, whether it works or not", () => {
  const { sql } = open(join(tempDir(), "s.db"));
  const mode = () => sql.prepare("PRAGMA synchronous").get()?.["synchronous"];
  expect([mode(), unsynced(sql, mode), mode()]).toEqual([2, 1, 2]);
  const refused = () => unsynced(sql, () => sql.exec("nonsense"));
  expect(refused).toThrow("nonsense");
  expect(mode()).toBe(2);
});

test("only SQLite's own errors have its code", () => {
  const { sql } = open(join(tempDir(), "s.db"));
  let thrown: unknown;
  try {
    sql.exec("nonsense");
  } catch (error) {
    thrown = error;
  }
  expect(sqliteCode(thrown)).toBe(1);
  expect(sqliteCode(new Error("x"))).toBeUndefined();
});
