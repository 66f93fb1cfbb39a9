import { sql } from "kysely";
import { expect, onTestFinished, test } from "vitest";
import { engineOf } from "../../../../src/controller/store/database.ts";
import { statement } from "../../../../src/controller/store/statement.ts";
import { openMemoryStore } from "../../../../src/controller/store/sqlite.ts";

type Tables = {
  readonly meta: { readonly key: string; readonly value: string };
};

test("a statement is built once, and runs with the values of each call, in transactions too", async () => {
  const store = openMemoryStore();
  onTestFinished(() => store.close());
  let built = 0;
  const put = statement<{ key: string; value: string }>()((db, value) => {
    built += 1;
    return db
      .$extendTables<Tables>()
      .insertInto("meta")
      .values({ key: value("key"), value: value("value") })
      .onConflict((conflict) => conflict.column("key").doUpdateSet({ value: value("value") }));
  });
  const get = statement<{ key: string }>()((db, value) =>
    db.$extendTables<Tables>().selectFrom("meta").select("value").where("key", "=", value("key")),
  );
  for (const value of ["1", "2"]) await put(store.db, { key: "a", value });
  const { numAffectedRows } = await store.transactions.run((tx) => put(tx, { key: "b", value: "3" }));
  expect([built, numAffectedRows]).toEqual([1, 1n]);
  expect((await get(store.db, { key: "a" })).rows).toEqual([{ value: "2" }]);
  expect((await get(store.db, { key: "b" })).rows).toEqual([{ value: "3" }]);
});

test("a statement takes a list of any length", async () => {
  const store = openMemoryStore();
  onTestFinished(() => store.close());
  await store.db
    .$extendTables<Tables>()
    .insertInto("meta")
    .values(["a", "b", "c"].map((key) => ({ key, value: key })))
    .execute();
  let built = 0;
  const find = statement<{ keys: readonly string[] }>()((db, value) => {
    built += 1;
    return db
      .$extendTables<Tables>()
      .selectFrom("meta")
      .select("value")
      .where(engineOf(db).isAnyOf(sql.ref("key"), value("keys")))
      .orderBy("key");
  });
  const found = async (keys: readonly string[]) => (await find(store.db, { keys })).rows.map(({ value }) => value);
  expect([await found([]), await found(["b"]), await found(["c", "a", "x"])]).toEqual([[], ["b"], ["a", "c"]]);
  expect(built).toBe(1);
});
