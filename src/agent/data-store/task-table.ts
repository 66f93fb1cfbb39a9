import type { DatabaseSync } from "node:sqlite";

// Kept apart from the store, so that an agent without a data store does not load its schemas.

/** Migration that creates the tasks' table. */
export const dataStoreMigration = `
CREATE TABLE data_store_tasks (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  path TEXT NOT NULL,
  peer TEXT,
  started_ms INTEGER NOT NULL,
  is_over INTEGER NOT NULL,
  state TEXT NOT NULL,
  work TEXT,
  resume TEXT
) STRICT;
CREATE INDEX data_store_tasks_open ON data_store_tasks (id) WHERE is_over = 0;
`;

/** Reports whether a task was interrupted, without reading tasks. */
export function hasOpenTasks(sql: DatabaseSync): boolean {
  return sql.prepare("SELECT 1 FROM data_store_tasks WHERE is_over=0 LIMIT 1").get() !== undefined;
}

/** Returns the number of waiting and running tasks. */
export function countOpenTasks(sql: DatabaseSync): number {
  return Number(sql.prepare("SELECT count(*) AS open FROM data_store_tasks WHERE is_over=0").get()?.["open"] ?? 0);
}
