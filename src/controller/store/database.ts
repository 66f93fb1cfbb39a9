import { sql, type Kysely, type RawBuilder, type SqlBool, type Transaction } from "kysely";
import { InternalError } from "../../errors.ts";

/** Runs statements: the database itself, or a transaction. An area names its tables with `db.$extendTables<NodeTables>()`. */
export type Executor = Kysely<object>;

/** An open transaction; usable wherever an executor is. */
export type OpenTransaction = Transaction<object>;

/** Runs work in transactions that hold what they read until they end. */
export interface Transactions {
  /**
   * Runs `work` in a transaction: whole, or not at all if it rejects. A transaction that conflicts with another is rolled back and
   * `work` runs again, so it may have no effect but on `tx`, and awaits its statements one by one. What follows from it comes after
   * `run` resolved.
   * @throws {InternalError} `nested-transaction` within another `run`, as for any statement there that does not go through `tx`;
   *   {HostError} `store-unavailable` after too many conflicts, or if the database fails
   */
  run<T>(work: (tx: OpenTransaction) => Promise<T>): Promise<T>;
  /** Runs work that only reads on the state of one moment. On PostgreSQL no other transaction waits for it or conflicts with it. */
  snapshot<T>(work: (tx: OpenTransaction) => Promise<T>): Promise<T>;
  /** Number of calls of `run` that rejected; state kept in memory about them may have been rolled back. */
  failures(): number;
}

/** An open database of either engine. */
export interface StoreDatabase {
  readonly engine: Engine;
  /** Runs single statements, each a transaction of its own. */
  readonly db: Executor;
  readonly transactions: Transactions;
  /** Copies the database to an empty file, while it is in use: statements wait for the end. Only SQLite has it. */
  copyTo?(path: string): Promise<void>;
  /** Closes the database after the statements that run. */
  close(): Promise<void>;
}

/** Differences between the engines that the query builder does not cover. */
export interface Engine {
  readonly name: "sqlite" | "postgres";
  readonly types: {
    /** Compared byte by byte on both engines, so that both sort alike. */
    readonly text: RawBuilder<unknown>;
    /** 64 bits; only numbers that JavaScript holds exactly are read. */
    readonly integer: RawBuilder<unknown>;
    readonly real: RawBuilder<unknown>;
    readonly bytes: RawBuilder<unknown>;
    /** Integer primary key that the engine counts itself. */
    readonly serial: RawBuilder<unknown>;
  };
  /** Ends `CREATE TABLE`; `keyed` stores the rows in their primary key. */
  readonly tableEnd: { readonly plain: RawBuilder<unknown>; readonly keyed: RawBuilder<unknown> };
  /** Returns the text of a member of a JSON object that is stored as text; NULL without it. */
  jsonField(column: RawBuilder<unknown>, key: string): RawBuilder<string | null>;
  /** Returns a member of the JSON object in a text column as JSON text; NULL without it. */
  jsonMember(column: RawBuilder<unknown>, key: string): RawBuilder<string | null>;
  /** Reports whether a text contains another, ASCII letters of either case being the same. */
  contains(column: RawBuilder<unknown>, text: string): RawBuilder<SqlBool>;
  /** Reports whether a text is in a list, with one statement for lists of every length; `list` may be a place for one. */
  isAnyOf(column: RawBuilder<unknown>, list: readonly string[] | RawBuilder<readonly string[]>): RawBuilder<SqlBool>;
  /** Returns a list as the value that `isAnyOf` takes. */
  listValue(list: readonly string[]): unknown;
}

const likePattern = (text: string): string => `%${text.replaceAll(/[\\%_]/g, String.raw`\$&`)}%`;

export const sqliteEngine: Engine = {
  name: "sqlite",
  types: {
    text: sql`text`,
    integer: sql`integer`,
    real: sql`real`,
    bytes: sql`blob`,
    serial: sql`integer primary key`,
  },
  tableEnd: { plain: sql`strict`, keyed: sql`strict, without rowid` },
  jsonField: (column, key) => sql`(${column} ->> ${`$.${JSON.stringify(key)}`})`,
  jsonMember: (column, key) => sql`(${column} -> ${`$.${JSON.stringify(key)}`})`,
  contains: (column, text) => sql`${column} like ${likePattern(text)} escape '\\'`,
  isAnyOf: (column, list) =>
    sql`${column} in (select value from json_each(${Array.isArray(list) ? JSON.stringify(list) : list}))`,
  listValue: (list) => JSON.stringify(list),
};

/** Escapes of JSON that are no characters for PostgreSQL, as a regular expression. */
const UNREADABLE = String.raw`\\u(0000|d[89a-f][0-9a-f]{2})`;

/**
 * Returns a text column as JSON. PostgreSQL refuses an escaped U+0000 or lone surrogate anywhere in the text, and `JSON.stringify` escapes
 * no other surrogate. What follows an escaped backslash stays valid, too. Most texts have no such escape, and need no regular expression.
 */
const readable = (column: RawBuilder<unknown>): RawBuilder<unknown> =>
  sql`(case when strpos(${column}, ${String.raw`\u`}) > 0 then regexp_replace(${column}, ${UNREADABLE}, ${String.raw`\\ufffd`}, 'g')
    else ${column} end)::json`;

export const postgresEngine: Engine = {
  name: "postgres",
  types: {
    text: sql`text collate "C"`,
    integer: sql`bigint`,
    real: sql`double precision`,
    bytes: sql`bytea`,
    serial: sql`bigint generated by default as identity primary key`,
  },
  tableEnd: { plain: sql``, keyed: sql`` },
  jsonField: (column, key) => sql`(${readable(column)} ->> ${key}::text)`,
  jsonMember: (column, key) => sql`(${readable(column)} -> ${key}::text)::text`,
  contains: (column, text) => sql`lower(${column}) like lower(${likePattern(text)}::text collate "C") escape '\\'`,
  isAnyOf: (column, list) => sql`${column} = any(${list}::text[])`,
  listValue: (list) => list,
};

/** Returns the engine that runs an executor's statements. */
export function engineOf(db: Executor): Engine {
  const { adapter } = db.getExecutor();
  if ("engine" in adapter) {
    for (const engine of [sqliteEngine, postgresEngine]) if (adapter.engine === engine) return engine;
  }
  throw new InternalError("no-engine", "the executor is not one of the store");
}
