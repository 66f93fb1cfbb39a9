import { sql } from "kysely";
import { onTestFinished } from "vitest";
import type { StoreDatabase } from "../../../src/controller/store/database.ts";
import { openMemoryStore } from "../../../src/controller/store/sqlite.ts";
import { storeIn, type Store } from "../../../src/controller/stores.ts";

/** A controller's store that is gone with its test. */
export interface TestStore extends Store {
  readonly database: StoreDatabase;
  /** Runs one statement that both engines understand. */
  query<Row = Record<string, unknown>>(text: string): Promise<readonly Row[]>;
}

export async function openTestStore(): Promise<TestStore> {
  const database = openMemoryStore();
  return {
    ...storeIn(database),
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
