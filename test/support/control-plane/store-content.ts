import { openSqliteAsIs } from "../../../src/controller/store/sqlite.ts";
import type { StoreDatabase } from "../../../src/controller/store/database.ts";
import { pagesOf, tablesOf } from "../../../src/controller/store/tables.ts";
import { isContent, keyFilesOf, readPostgres, type Place } from "../../../src/controller/maintenance/places.ts";

export type StoreContent = Readonly<Record<string, readonly Readonly<Record<string, unknown>>[]>>;

/** Returns every row of every table of a store that no controller uses. */
export async function contentOf(place: Place): Promise<StoreContent> {
  const store = await opened(place);
  try {
    const content: Record<string, Readonly<Record<string, unknown>>[]> = {};
    for (const table of await tablesOf(store.db)) {
      const rows: Readonly<Record<string, unknown>>[] = [];
      for await (const page of pagesOf(store.db, table)) rows.push(...page.filter((row) => isContent(table.name, row)));
      // Both engines give the rows of a table in the order of its key; SQLite's have no prototype.
      content[table.name] = rows.map((row) => Object.fromEntries(Object.entries(row)));
    }
    return content;
  } finally {
    await store.close();
  }
}

function opened({ dataDir, postgres }: Place): Promise<StoreDatabase> | StoreDatabase {
  return postgres === undefined ? openSqliteAsIs(`${dataDir}/controller.db`) : readPostgres(postgres);
}

/** Returns the keys and certificates of a data directory by their names. */
export async function keysOf(dataDir: string): Promise<Readonly<Record<string, string>>> {
  return Object.fromEntries((await keyFilesOf(dataDir)).map(({ name, text }) => [name, text]));
}
