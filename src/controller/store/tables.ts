import { CompiledQuery, sql, type RawBuilder } from "kysely";
import { InternalError } from "../../errors.ts";
import { storable } from "./columns.ts";
import { engineOf, type Executor } from "./database.ts";
import type { Value } from "./statement.ts";

/** A table as the engine describes it. */
export interface StoredTable {
  readonly name: string;
  readonly columns: readonly string[];
  /** Columns of the primary key, in its order. */
  readonly key: readonly string[];
  /** Other tables that rows of this one refer to. */
  readonly references: readonly string[];
}

export type StoredRow = Readonly<Record<string, Value>>;

/** Tables of which each engine keeps its own. */
const OWN: ReadonlySet<string> = new Set(["holdfast_schema", "controller_lock"]);
/** Limits of a page of rows: the memory of one is near the first, unless a single row is larger. */
const PAGE_BYTES = 2 * 1024 * 1024;
const MAX_PAGE_ROWS = 1000;
const FIRST_PAGE_ROWS = 16;
/** Rows of one statement; both engines limit its parameters. */
const INSERTED_ROWS = 100;

/** Returns the tables of a store, each after those that it refers to. */
export async function tablesOf(db: Executor): Promise<readonly StoredTable[]> {
  const found = engineOf(db).name === "sqlite" ? await sqliteTables(db) : await postgresTables(db);
  return inOrder(found.filter(({ name }) => !OWN.has(name)));
}

type Named = { readonly name: string };

async function sqliteTables(db: Executor): Promise<readonly StoredTable[]> {
  const list = async <Row>(query: RawBuilder<Row>): Promise<readonly Row[]> => (await query.execute(db)).rows;
  const names = sql<Named>`select name from sqlite_schema where type = 'table' and name not like 'sqlite%' order by name`;
  const tables: StoredTable[] = [];
  for (const { name } of await list(names)) {
    const columns = await list(
      sql<Named & { readonly pk: number }>`select name, pk from pragma_table_info(${name}) order by cid`,
    );
    const targets = await list(sql<Named>`select distinct "table" as name from pragma_foreign_key_list(${name})`);
    tables.push({
      name,
      columns: columns.map((column) => column.name),
      key: columns
        .filter(({ pk }) => pk > 0)
        .sort((a, b) => a.pk - b.pk)
        .map((column) => column.name),
      references: targets.map((target) => target.name),
    });
  }
  return tables;
}

async function postgresTables(db: Executor): Promise<readonly StoredTable[]> {
  const list = async <Row>(query: RawBuilder<Row>): Promise<readonly Row[]> => (await query.execute(db)).rows;
  const names = sql<Named>`select relname::text as name from pg_class
    where relkind = 'r' and relnamespace = current_schema()::regnamespace order by relname`;
  const tables: StoredTable[] = [];
  for (const { name } of await list(names)) {
    const columns = sql<Named>`select attname::text as name from pg_attribute
      where attrelid = ${sql.lit(name)}::regclass and attnum > 0 and not attisdropped order by attnum`;
    const key = sql<Named>`select attname::text as name from pg_index
      join lateral unnest(indkey) with ordinality as part (number, place) on true
      join pg_attribute on attrelid = indrelid and attnum = part.number
      where indrelid = ${sql.lit(name)}::regclass and indisprimary order by part.place`;
    const targets = sql<Named>`select distinct confrelid::regclass::text as name from pg_constraint
      where contype = 'f' and conrelid = ${sql.lit(name)}::regclass`;
    const namesOf = async (query: RawBuilder<Named>) => (await list(query)).map((row) => row.name);
    tables.push({
      name,
      columns: await namesOf(columns),
      key: await namesOf(key),
      references: await namesOf(targets),
    });
  }
  return tables;
}

function inOrder(tables: readonly StoredTable[]): readonly StoredTable[] {
  const ordered: StoredTable[] = [];
  const done = new Set<string>();
  let left = tables;
  while (left.length > 0) {
    const ready = left.filter(({ name, references }) => references.every((other) => other === name || done.has(other)));
    if (ready.length === 0) {
      throw new InternalError("table-circle", `tables refer to each other: ${left.map(({ name }) => name).join(", ")}`);
    }
    for (const table of ready) done.add(table.name);
    ordered.push(...ready);
    left = left.filter(({ name }) => !done.has(name));
  }
  return ordered;
}

/** Reads a table in the order of its key, some rows at a time; within a transaction, so that they fit together. */
export async function* pagesOf(
  db: Executor,
  { name, columns, key }: StoredTable,
): AsyncGenerator<readonly StoredRow[], void> {
  if (key.length === 0) throw new InternalError("no-key", `the table ${name} has no primary key`);
  const list = (parts: readonly string[]) => sql.join(parts.map((part) => sql.ref(part)));
  let limit = FIRST_PAGE_ROWS;
  let last: StoredRow | undefined;
  for (;;) {
    const after = last;
    const rest =
      after === undefined ? sql`` : sql`where (${list(key)}) > (${sql.join(key.map((part) => after[part] ?? null))})`;
    const query = sql<StoredRow>`select ${list(columns)} from ${sql.table(name)} ${rest} order by ${list(key)} limit ${limit}`;
    const { rows } = await query.execute(db);
    if (rows.length > 0) yield rows;
    if (rows.length < limit) return;
    last = rows.at(-1);
    const rowBytes = rows.reduce((sum, row) => sum + sizeOf(row), 0) / rows.length;
    limit = Math.max(1, Math.min(MAX_PAGE_ROWS, Math.floor(PAGE_BYTES / rowBytes)));
  }
}

function sizeOf(row: StoredRow): number {
  return Object.values(row).reduce<number>(
    (sum, value) => sum + (typeof value === "string" || value instanceof Uint8Array ? value.length : 8),
    0,
  );
}

/** Adds rows to a table; all have the columns of the first. */
export async function insertRows(db: Executor, table: string, rows: readonly StoredRow[]): Promise<void> {
  const [first] = rows;
  if (first === undefined) return;
  const columns = Object.keys(first);
  const isPostgres = engineOf(db).name === "postgres";
  const stored = (value: Value | undefined): Value =>
    isPostgres && typeof value === "string" ? storable(value) : (value ?? null);
  // Written out: building so many statements by the query builder takes most of the time.
  const into = `insert into ${quoted(table)} (${columns.map(quoted).join(", ")}) values `;
  const tuple = (row: number): string =>
    `(${columns.map((_, column) => (isPostgres ? `$${row * columns.length + column + 1}` : "?")).join(", ")})`;
  for (let at = 0; at < rows.length; at += INSERTED_ROWS) {
    const part = rows.slice(at, at + INSERTED_ROWS);
    const values = part.flatMap((row) => columns.map((column) => stored(row[column])));
    await db.executeQuery(CompiledQuery.raw(into + part.map((_, row) => tuple(row)).join(", "), values));
  }
}

const quoted = (name: string): string => `"${name.replaceAll('"', '""')}"`;

/** Removes the rows of all tables. */
export async function clearTables(db: Executor): Promise<void> {
  for (const { name } of [...(await tablesOf(db))].reverse()) await sql`delete from ${sql.table(name)}`.execute(db);
}

/** Continues the counted keys of each table after its rows, which were added with their keys. */
export async function continueSerials(db: Executor): Promise<void> {
  if (engineOf(db).name === "sqlite") return;
  const serials = sql<{ readonly table: string; readonly column: string }>`select relname::text as "table",
    attname::text as "column" from pg_attribute join pg_class on pg_class.oid = attrelid
    where relkind = 'r' and relnamespace = current_schema()::regnamespace and attidentity <> '' and attnum > 0`;
  for (const { table, column } of (await serials.execute(db)).rows) {
    await sql`select setval(pg_get_serial_sequence(${sql.lit(table)}, ${sql.lit(column)}),
      coalesce(max(${sql.ref(column)}), 1), max(${sql.ref(column)}) is not null) from ${sql.table(table)}`.execute(db);
  }
}

/** Copies the rows of all tables from a store to an empty one with the same schema. */
export async function copyTables(
  from: Executor,
  to: Executor,
  isCopied: (table: string, row: StoredRow) => boolean = () => true,
): Promise<void> {
  for (const table of await tablesOf(from)) {
    for await (const rows of pagesOf(from, table)) {
      await insertRows(
        to,
        table.name,
        rows.filter((row) => isCopied(table.name, row)),
      );
    }
  }
  await continueSerials(to);
}
