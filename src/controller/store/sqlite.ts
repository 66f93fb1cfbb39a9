import { backup, DatabaseSync, type SQLInputValue, type SQLOutputValue, type StatementSync } from "node:sqlite";
import {
  Kysely,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  type QueryResult,
} from "kysely";
import { HostError, InternalError } from "../../errors.ts";
import { atomic, openDatabase, storageError } from "../../host/files/database.ts";
import { migrateSchema } from "../../host/files/schema.ts";
import { Fifo } from "../../lib/async/fifo.ts";
import { sqliteEngine, type OpenTransaction, type StoreDatabase } from "./database.ts";
import { sqliteMigrations } from "./schema.ts";
import { sharedCommits } from "./shared-commits.ts";
import { TransactionScope, transactionsOf } from "./transactions.ts";

/**
 * Opens the database file of a controller, locked for this process, and brings its schema up to date. Every commit is on the disk.
 * @param isExpected whether this controller has run before, so that an empty file counts as damaged
 * @throws {HostError} `state-locked` if another controller uses the file, `state-damaged` if it is damaged, `state-too-new` if a
 *   newer version wrote it, `storage-unavailable` if the disk takes no writes
 */
export function openSqliteStore(path: string, isExpected = false): StoreDatabase {
  // A damaged file is not replaced: an empty database would reject all nodes. Whether to restore a backup is the operator's decision.
  const options = { migrations: sqliteMigrations(), exclusive: true, onDamage: "refuse", isExpected } as const;
  const { sql, isPersistent } = openDatabase(path, options);
  if (isPersistent) return storeOver(sql);
  sql.close();
  throw new HostError("storage-unavailable", `${path} cannot be written`, { details: { path } });
}

/** Opens a database in memory, which is discarded when it is closed. */
export function openMemoryStore(): StoreDatabase {
  const sql = new DatabaseSync(":memory:");
  migrateSchema(sql, sqliteMigrations());
  return storeOver(sql);
}

/**
 * Opens an existing database file without a migration, locked for this process.
 * @throws {HostError} `state-locked`, `state-damaged` or `database-failed`
 */
export function openSqliteAsIs(path: string): StoreDatabase {
  const options = { migrations: "as-is", exclusive: true, onDamage: "refuse", isExpected: true } as const;
  return storeOver(openDatabase(path, options).sql);
}

/**
 * Makes a database file with the tables of a schema version, filled by `fill` in one transaction, and brings it up to date. Once done,
 * it is on the disk, and no other file is beside it.
 * @throws what `fill` throws; {HostError} `storage-unavailable`
 */
export async function buildSqliteStore(
  path: string,
  version: number,
  fill: (tx: OpenTransaction) => Promise<void>,
): Promise<void> {
  const migrations = sqliteMigrations();
  const sql = new DatabaseSync(path);
  const store = storeOver(sql);
  try {
    sql.exec("PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON");
    migrateSchema(sql, migrations.slice(0, version));
    await store.transactions.run(fill);
    atomic(sql, () => migrateSchema(sql, migrations));
  } catch (error) {
    throw storageError(error) ?? error;
  } finally {
    await store.close();
  }
}

/** Runs statements of the query builder on an open SQLite database; closing the result closes it. */
export function storeOver(sql: DatabaseSync): StoreDatabase {
  const scope = new TransactionScope();
  const driver = new SqliteDriver(sql, scope);
  const db = new Kysely<object>({ dialect: dialectOf(driver) });
  const transactions = sharedCommits(transactionsOf(db, scope), scope);
  return {
    engine: sqliteEngine,
    db,
    transactions,
    copyTo: (path) => driver.copyTo(path),
    async close() {
      await transactions.idle();
      await driver.destroy();
    },
  };
}

function dialectOf(driver: Driver): Dialect {
  return {
    createDriver: () => driver,
    createAdapter: () => new StoreAdapter(),
    createQueryCompiler: () => new SqliteQueryCompiler(),
    createIntrospector: (db) => new SqliteIntrospector(db),
  };
}

class StoreAdapter extends SqliteAdapter {
  readonly engine = sqliteEngine;

  /** The driver shares its one connection itself. */
  override get supportsMultipleConnections(): boolean {
    return true;
  }
}

/** Pages of one step of a copy, between which the event loop runs. */
const COPIED_PAGES = 1000;

/** Gives one connection to one statement or transaction after another, in the order of their requests. */
class SqliteDriver implements Driver {
  readonly #sql: DatabaseSync;
  readonly #scope: TransactionScope;
  readonly #connection: SqliteConnection;
  readonly #waiting = new Fifo<() => void>();
  #isTaken = false;
  #isClosed = false;

  constructor(sql: DatabaseSync, scope: TransactionScope) {
    this.#sql = sql;
    this.#scope = scope;
    this.#connection = new SqliteConnection(sql);
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<DatabaseConnection> {
    this.#scope.refuseWithin();
    if (this.#isTaken) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#isTaken = true;
    if (!this.#isClosed) return this.#connection;
    this.#passOn();
    throw new HostError("store-unavailable", "the store is closed");
  }

  async releaseConnection(): Promise<void> {
    this.#passOn();
  }

  async beginTransaction(): Promise<void> {
    this.#connection.run("BEGIN IMMEDIATE");
  }

  async commitTransaction(): Promise<void> {
    this.#connection.run("COMMIT");
  }

  async rollbackTransaction(): Promise<void> {
    // After some failures (a full disk) SQLite has already rolled back, and a second rollback is an error.
    if (this.#sql.isTransaction) this.#connection.run("ROLLBACK");
  }

  /** A backup of a connection that writes meanwhile fails, so it takes its turn as a transaction does. */
  async copyTo(path: string): Promise<void> {
    await this.acquireConnection();
    try {
      await backup(this.#sql, path, { rate: COPIED_PAGES });
    } catch (error) {
      throw storageError(error) ?? error;
    } finally {
      this.#passOn();
    }
  }

  async destroy(): Promise<void> {
    if (this.#isClosed) return;
    if (this.#isTaken) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#isTaken = true;
    if (!this.#isClosed) this.#sql.close();
    this.#isClosed = true;
    this.#passOn();
  }

  #passOn(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#isTaken = false;
    else next();
  }
}

/** Limit of the statements kept prepared; texts vary by the filters of lists. */
const MAX_PREPARED = 500;

interface Prepared {
  readonly statement: StatementSync;
  /** Undefined if the statement returns no rows. */
  readonly rowOf: RowMaker | undefined;
}

class SqliteConnection implements DatabaseConnection {
  readonly #sql: DatabaseSync;
  readonly #prepared = new Map<string, Prepared>();

  constructor(sql: DatabaseSync) {
    this.#sql = sql;
  }

  async executeQuery<R>({ sql, parameters }: CompiledQuery): Promise<QueryResult<R>>;
  async executeQuery({ sql, parameters }: CompiledQuery): Promise<QueryResult<unknown>> {
    return this.run(sql, parameters);
  }

  // oxlint-disable-next-line require-yield
  async *streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new InternalError("no-streaming", "the store reads lists whole");
  }

  run(text: string, parameters: readonly unknown[] = []): QueryResult<unknown> {
    try {
      const { statement, rowOf } = this.#prepare(text);
      const values = parameters.map(bindable);
      if (rowOf !== undefined) return { rows: statement.all(...values).map(rowOf) };
      const { changes, lastInsertRowid } = statement.run(...values);
      return { rows: [], numAffectedRows: BigInt(changes), insertId: BigInt(lastInsertRowid) };
    } catch (error) {
      throw storageError(error) ?? error;
    }
  }

  #prepare(text: string): Prepared {
    const known = this.#prepared.get(text);
    if (known !== undefined) {
      // Moves it to the end: the first is the one that was not used for longest.
      this.#prepared.delete(text);
      this.#prepared.set(text, known);
      return known;
    }
    const statement = this.#sql.prepare(text);
    const columns = statement.columns().map(({ name }) => name);
    statement.setReturnArrays(true);
    const prepared = { statement, rowOf: columns.length > 0 ? rowMaker(columns) : undefined };
    this.#prepared.set(text, prepared);
    for (const oldest of this.#prepared.keys()) {
      if (this.#prepared.size <= MAX_PREPARED) break;
      this.#prepared.delete(oldest);
    }
    return prepared;
  }
}

/** Makes an object of the values of a row, which are in the order of the columns. */
type RowMaker = (values: Readonly<Record<number, SQLOutputValue>>) => Readonly<Record<string, SQLOutputValue>>;

/** Makes objects of one shape: those of `node:sqlite` share no hidden class in V8, so they are slow to make and to read. */
function rowMaker(columns: readonly string[]): RowMaker {
  const shape: Record<string, SQLOutputValue> = Object.fromEntries(columns.map((name) => [name, null]));
  return (values) => {
    const row = { ...shape };
    columns.forEach((name, at) => (row[name] = values[at] ?? null));
    return row;
  };
}

function bindable(value: unknown): SQLInputValue {
  if (value === null || typeof value === "string" || typeof value === "number" || value instanceof Uint8Array) {
    return value;
  }
  throw new InternalError("bad-parameter", `a statement of the store takes no ${typeof value}`);
}
