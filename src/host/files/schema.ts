import type { DatabaseSync } from "node:sqlite";

/**
 * One step of a schema. A plain script only adds, so older programs keep working with the database. A step that older programs
 * cannot work with is marked as breaking.
 */
export type Migration = string | { readonly sql: string; readonly isBreaking: true };

/** The schema version that a newer program left, and the oldest schema version whose programs may use it. */
export interface NewerSchema {
  readonly version: number;
  /** Undefined if the database does not state it. */
  readonly compatibleFrom: number | undefined;
}

const COMPATIBILITY = `
  CREATE TABLE IF NOT EXISTS holdfast_schema (
    id INTEGER PRIMARY KEY CHECK (id = 1), compatible_from INTEGER NOT NULL
  ) STRICT;
`;

/** Returns the schema version of a database. */
export function schemaVersion(sql: DatabaseSync): number {
  return Number(sql.prepare("PRAGMA user_version").get()?.["user_version"] ?? 0);
}

/**
 * Brings the schema up to date within the open transaction. Leaves a newer schema unchanged and returns it if this version cannot
 * use it.
 */
export function migrateSchema(sql: DatabaseSync, migrations: readonly Migration[]): NewerSchema | undefined {
  const done = schemaVersion(sql);
  if (done > migrations.length) {
    const compatibleFrom = compatibleFromOf(sql);
    return compatibleFrom !== undefined && compatibleFrom <= migrations.length
      ? undefined
      : { version: done, compatibleFrom };
  }
  if (done === migrations.length) return undefined;
  for (const step of migrations.slice(done)) sql.exec(typeof step === "string" ? step : step.sql);
  sql.exec(COMPATIBILITY);
  const from = oldestReader(migrations);
  sql.prepare("INSERT OR REPLACE INTO holdfast_schema (id, compatible_from) VALUES (1, ?)").run(from);
  sql.exec(`PRAGMA user_version=${migrations.length}`);
  return undefined;
}

/** Returns the version of the last breaking step. Pure. */
export function oldestReader(migrations: readonly Migration[]): number {
  return migrations.findLastIndex((step) => typeof step !== "string") + 1 || 1;
}

function compatibleFromOf(sql: DatabaseSync): number | undefined {
  const table = sql.prepare("SELECT 1 FROM sqlite_schema WHERE type='table' AND name='holdfast_schema'").get();
  if (table === undefined) return undefined;
  const said = sql.prepare("SELECT compatible_from FROM holdfast_schema WHERE id = 1").get()?.["compatible_from"];
  return typeof said === "number" ? said : undefined;
}
