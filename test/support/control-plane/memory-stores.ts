import { DatabaseSync } from "node:sqlite";
import { migrations } from "../../../src/controller/store/migrations.ts";
import { storesOver, type Stores } from "../../../src/controller/stores.ts";

/** The controller's stores over a database in memory. */
export function memoryStores(): Stores {
  const sql = new DatabaseSync(":memory:");
  for (const script of migrations) sql.exec(script);
  return storesOver(sql, true);
}
