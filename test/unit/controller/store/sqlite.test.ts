import { AsyncLocalStorage } from "node:async_hooks";
import { DatabaseSync } from "node:sqlite";
import { join } from "node:path";
import { sql } from "kysely";
import { describe, expect, onTestFinished, test } from "vitest";
import { openDatabase } from "../../../../src/host/files/database.ts";
import type { StoreDatabase } from "../../../../src/controller/store/database.ts";
import { migrations } from "../../../../src/controller/store/migrations.ts";
import {
  BASELINE_VERSION,
  schemaSteps,
  sqliteBaseline,
  sqliteMigrations,
  type SchemaStep,
} from "../../../../src/controller/store/schema.ts";
import { openMemoryStore, openSqliteStore, storeOver } from "../../../../src/controller/store/sqlite.ts";
import { engineAnswers, EXPECTED } from "../../../support/control-plane/engine-answers.ts";
import { sqliteShape } from "../../../support/control-plane/shapes.ts";
import { deferred } from "../../../support/deferred.ts";
import { tempDir } from "../../../support/temp-dir.ts";

type Tables = {
  readonly meta: { readonly key: string; readonly value: string };
};

function memory(): StoreDatabase {
  const store = openMemoryStore();
  onTestFinished(() => store.close());
  return store;
}

const values = async ({ db }: StoreDatabase): Promise<unknown> =>
  (await db.$extendTables<Tables>().selectFrom("meta").selectAll().orderBy("key").execute()).map(({ value }) => value);

const put = (db: StoreDatabase["db"], key: string, value: string): Promise<unknown> =>
  db.$extendTables<Tables>().insertInto("meta").values({ key, value }).execute();

describe("the schema", () => {
  test("is the same by the scripts of SQLite files and by the baseline", () => {
    const old = openMemory(migrations);
    const made = openMemory([sqliteBaseline()]);
    expect(sqliteShape(made)).toEqual(sqliteShape(old));
    expect(sqliteShape(old)).toHaveLength(26);
  });

  const more: SchemaStep = {
    statements: (db, { types }) => [
      db.schema
        .createTable("more")
        .addColumn("id", types.serial)
        .addColumn("data", types.bytes)
        .modifyEnd(sql`strict`),
    ],
  };

  test("gains a step after the baseline, and a breaking one shuts older programs out", () => {
    const path = join(tempDir(), "controller.db");
    const open = (steps: readonly SchemaStep[]) =>
      openDatabase(path, {
        migrations: sqliteMigrations([...schemaSteps, ...steps]),
        exclusive: true,
        onDamage: "refuse",
      }).sql;
    open([]).close();
    const after = open([more]);
    expect(after.prepare("PRAGMA user_version").get()).toEqual({
      user_version: BASELINE_VERSION + schemaSteps.length + 1,
    });
    after.close();
    open([]).close();
    open([more, { statements: (db) => [db.schema.dropTable("more")], isBreaking: true }]).close();
    expect(() => open([])).toThrow(expect.objectContaining({ code: "state-too-new" }));
  });

  test("refuses a step with parameters", () => {
    const step: SchemaStep = {
      statements: (db) => [db.$extendTables<Tables>().updateTable("meta").set({ value: "v" })],
    };
    expect(() => sqliteMigrations([step])).toThrow("has parameters");
  });
});

describe("a file", () => {
  test("keeps what an earlier program wrote, and is held by one program", async () => {
    const path = join(tempDir(), "controller.db");
    const { sql: old } = openDatabase(path, { migrations: migrations.slice(0, 5), exclusive: true });
    old.exec("INSERT INTO meta VALUES ('org', 'o1')");
    old.close();
    const store = openSqliteStore(path, true);
    expect(await values(store)).toEqual(["o1"]);
    expect(() => openSqliteStore(path, true)).toThrow(expect.objectContaining({ code: "state-locked" }));
    await store.close();
    const again = openSqliteStore(path, true);
    await again.close();
    await again.close();
    await expect(values(again)).rejects.toThrow("closed");
  });

  test("says that its disk is full", async () => {
    const store = openSqliteStore(join(tempDir(), "controller.db"));
    onTestFinished(() => store.close());
    await sql`pragma max_page_count = 1`.execute(store.db);
    const fill = store.transactions.run((tx) => put(tx, "k", "v".repeat(1_000_000)));
    await expect(fill).rejects.toMatchObject({ code: "storage-unavailable" });
    expect(await values(store)).toEqual([]);
  });
});

describe("a transaction", () => {
  test("is whole or nothing, and its failures are counted", async () => {
    const store = memory();
    await store.transactions.run(async (tx) => {
      await put(tx, "a", "1");
      await put(tx, "b", "2");
    });
    const failing = store.transactions.run(async (tx) => {
      await put(tx, "c", "3");
      throw new Error("stop");
    });
    await expect(failing).rejects.toThrow("stop");
    expect([await values(store), store.transactions.failures()]).toEqual([["1", "2"], 1]);
  });

  test("lets statements beside it wait, in their order", async () => {
    const store = memory();
    const seen: string[] = [];
    const [begun, gate] = [deferred<void>(), deferred<void>()];
    const work = store.transactions.run(async (tx) => {
      await put(tx, "a", "1");
      begun.resolve();
      await gate.promise;
      await put(tx, "b", "2");
      seen.push("transaction");
    });
    await begun.promise;
    const beside = [1, 2].map(async (n) => seen.push(`${n} saw ${JSON.stringify(await values(store))}`));
    const next = store.transactions.run((tx) => put(tx, "c", "3"));
    gate.resolve();
    await Promise.all([work, ...beside, next]);
    expect(seen).toEqual(["transaction", `1 saw ["1","2"]`, `2 saw ["1","2"]`]);
  });

  test("refuses statements that go past it, and no others", async () => {
    const store = memory();
    const other = memory();
    let later: Promise<unknown> | undefined;
    const gate = deferred<void>();
    await store.transactions.run(async (tx) => {
      await expect(values(store)).rejects.toMatchObject({ code: "nested-transaction" });
      await expect(store.transactions.run(async () => 1)).rejects.toMatchObject({ code: "nested-transaction" });
      expect(await values(other)).toEqual([]);
      await put(tx, "a", "1");
      later = gate.promise.then(() => values(store));
    });
    gate.resolve();
    expect(await later).toEqual(["1"]);
  });
});

describe("transactions of one turn of the event loop", () => {
  test("settle after a commit that they share, and one that fails is undone alone", async () => {
    const store = memory();
    const seen: string[] = [];
    const run = async (key: string, error?: Error): Promise<void> => {
      const work = store.transactions.run(async (tx) => {
        seen.push(`${key} runs`);
        await put(tx, key, key);
        if (error !== undefined) throw error;
      });
      await work.catch(() => undefined);
      seen.push(`${key} ends`);
    };
    await Promise.all([run("a"), run("b", new Error("stop")), run("c")]);
    expect(seen).toEqual(["a runs", "b runs", "c runs", "a ends", "b ends", "c ends"]);
    expect([await values(store), store.transactions.failures()]).toEqual([["a", "c"], 1]);
  });

  test("fail together if the disk takes none of them", async () => {
    const store = openSqliteStore(join(tempDir(), "controller.db"));
    onTestFinished(() => store.close());
    await sql`pragma max_page_count = 1`.execute(store.db);
    const outcomes = await Promise.allSettled(
      ["v", "v".repeat(1_000_000)].map((value, n) => store.transactions.run((tx) => put(tx, `k${n}`, value))),
    );
    const full: unknown = expect.objectContaining({ code: "storage-unavailable" });
    expect(outcomes).toEqual([1, 2].map(() => ({ status: "rejected", reason: full })));
    expect(await values(store)).toEqual([]);
  });

  test("run in the context of their callers", async () => {
    const store = memory();
    const caller = new AsyncLocalStorage<number>();
    const run = (n: number) => caller.run(n, () => store.transactions.run(async () => caller.getStore()));
    expect(await Promise.all([run(1), run(2)])).toEqual([1, 2]);
  });

  test("are stored before the database is closed", async () => {
    const path = join(tempDir(), "controller.db");
    const store = openSqliteStore(path);
    const work = store.transactions.run((tx) => put(tx, "a", "1"));
    await store.close();
    await work;
    const again = openSqliteStore(path, true);
    onTestFinished(() => again.close());
    expect(await values(again)).toEqual(["1"]);
  });
});

test("numbers, texts, bytes and nothing come back as they were written", async () => {
  const store = memory();
  await sql`create table kinds (i integer, r real, t text, b blob) strict`.execute(store.db);
  const rows = [
    { i: Number.MAX_SAFE_INTEGER, r: 0.1, t: `{"b":1, "a":"\\u0000ä🚢"}`, b: new Uint8Array([0, 255, 7]) },
    { i: -1, r: -1e300, t: "", b: new Uint8Array() },
    { i: null, r: null, t: null, b: null },
  ];
  type Kinds = { readonly kinds: { i: number | null; r: number | null; t: string | null; b: Uint8Array | null } };
  const db = store.db.$extendTables<Kinds>();
  const { numInsertedOrUpdatedRows: count } = await db.insertInto("kinds").values(rows).executeTakeFirstOrThrow();
  expect(count).toBe(3n);
  expect(await db.selectFrom("kinds").selectAll().execute()).toEqual(rows);
});

test("order, members of JSON, parts of texts and lists are found alike on both engines", async () => {
  expect(await engineAnswers(memory())).toEqual(EXPECTED);
});

test("more statements than are kept prepared give the same answers", async () => {
  const { db } = memory();
  for (let round = 0; round < 2; round += 1) {
    for (let n = 0; n < 600; n += 1) {
      const { rows } = await sql`select ${sql.lit(n)} as n`.execute(db);
      expect(rows).toEqual([{ n }]);
    }
  }
});

function openMemory(scripts: Parameters<typeof openDatabase>[1]["migrations"]): DatabaseSync {
  const database = new DatabaseSync(":memory:");
  const store = storeOver(database);
  onTestFinished(() => store.close());
  for (const script of scripts) database.exec(typeof script === "string" ? script : script.sql);
  return database;
}
