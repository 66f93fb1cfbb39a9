import { randomUUID } from "node:crypto";
import { sql } from "kysely";
import { onTestFinished } from "vitest";
import type { Clock } from "../../../src/host/clock.ts";
import type { StoreDatabase } from "../../../src/controller/store/database.ts";
import { connectPostgres } from "../../../src/controller/store/postgres.ts";
import { parseStoreUrl } from "../../../src/controller/store/postgres-settings.ts";
import { migrateShared } from "../../../src/controller/store/schema.ts";
import { openMemoryStore } from "../../../src/controller/store/sqlite.ts";
import { storeIn, type Store } from "../../../src/controller/stores.ts";

/** A controller's store that is gone with its test. */
export interface TestStore extends Store {
  readonly database: StoreDatabase;
  /** Runs one statement that both engines understand. */
  query<Row = Record<string, unknown>>(text: string): Promise<readonly Row[]>;
}

/** Opens an empty store: in memory, or, if HOLDFAST_TEST_STORE is the address of a PostgreSQL, in a new database there. */
export async function openTestStore(clock?: Clock): Promise<TestStore> {
  const address = process.env["HOLDFAST_TEST_STORE"];
  const database = address === undefined ? openMemoryStore() : await openPostgresDatabase(address);
  return {
    ...storeIn(database, clock),
    database,
    query: async <Row>(text: string) => (await sql.raw<Row>(text).execute(database.db)).rows,
  };
}

/** A store of a test of its own, closed at its end. */
export async function freshStore(): Promise<TestStore> {
  const store = await openTestStore();
  onTestFinished(() => store.close());
  return store;
}

async function openPostgresDatabase(text: string): Promise<StoreDatabase> {
  const address = parseStoreUrl(text);
  const lock = { check: () => undefined };
  const name = `test_${randomUUID().replaceAll("-", "")}`;
  const admin = connectPostgres({ address }, lock);
  await sql.raw(`create database ${name}`).execute(admin.db);
  const database = connectPostgres({ address: { ...address, database: name } }, lock);
  await migrateShared(database);
  return {
    ...database,
    async close() {
      await database.close();
      await sql.raw(`drop database ${name}`).execute(admin.db);
      await admin.close();
    },
  };
}
