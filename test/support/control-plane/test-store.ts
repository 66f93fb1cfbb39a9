import type { StoreDatabase } from "../../../src/controller/store/database.ts";
import { openMemoryStore } from "../../../src/controller/store/sqlite.ts";
import { storeIn, type Store } from "../../../src/controller/stores.ts";

/** A controller's store that is gone with its test. */
export interface TestStore extends Store {
  readonly database: StoreDatabase;
}

export async function openTestStore(): Promise<TestStore> {
  const database = openMemoryStore();
  return { ...storeIn(database), database };
}
