import { openMemoryStore } from "../../../src/controller/store/sqlite.ts";
import { storeIn, type Store } from "../../../src/controller/stores.ts";

/** The controller's store over a database in memory. */
export function memoryStores(): Store {
  return storeIn(openMemoryStore());
}
