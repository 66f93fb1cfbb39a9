import { Pool, types, type ClientConfig, type PoolClient, type QueryResultRow } from "pg";
import {
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  sql,
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  type QueryResult,
  type TransactionSettings,
} from "kysely";
import { InternalError, type HostError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { takeLock, type ControllerLock, type LockHolder } from "./controller-lock.ts";
import { postgresEngine, type StoreDatabase } from "./database.ts";
import { isConflict, isConnectionUsable, storeError, unavailable } from "./postgres-errors.ts";
import {
  addressText,
  connectionOf,
  POSTGRES_LIMITS,
  type PostgresLimits,
  type PostgresSettings,
} from "./postgres-settings.ts";
import { migrateShared, type SchemaStep } from "./schema.ts";
import { TransactionScope, transactionsOf } from "./transactions.ts";

export interface PostgresOptions {
  readonly settings: PostgresSettings;
  /** This controller, as a second one is told. */
  readonly holder: LockHolder;
  readonly clock: Clock;
  /** Called once if another controller has used the database while this one had lost its lock, so that it must end. */
  readonly onTakenOver: (error: HostError) => void;
  /** Steps of the schema after the baseline. */
  readonly steps?: readonly SchemaStep[];
}

/** Connections of a controller besides that of its lock. */
const MAX_CONNECTIONS = 8;
const IDLE_MS = 60_000;

/**
 * Opens the database of a controller on a PostgreSQL server, locked for this controller, and brings its schema up to date. Once open
 * it stays so: while the server cannot be used every statement rejects with `store-unavailable`, and works again by itself.
 * @throws {InputError} `invalid-settings`; {HostError} `state-locked` if another controller uses it, `state-too-new` if a newer
 *   version wrote it, `store-unavailable` if it cannot be reached
 */
export async function openPostgresStore(options: PostgresOptions): Promise<StoreDatabase> {
  const { settings, holder, clock, onTakenOver, steps } = options;
  const { connectMs, lockCheckMs } = { ...POSTGRES_LIMITS, ...settings.limits };
  const address = addressText(settings.address);
  const lock = await takeLock({
    connection: { ...connectionOf(settings), connectionTimeoutMillis: connectMs },
    address,
    holder,
    checkMs: lockCheckMs,
    clock,
    onTakenOver,
  });
  try {
    // A migration may take longer than a statement of the API.
    const unlimited = connectPostgres({ ...settings, limits: { ...settings.limits, statementMs: 0 } }, lock);
    try {
      await checkEncoding(unlimited, address);
      await migrateShared(unlimited, steps);
    } finally {
      await unlimited.close();
    }
    const store = connectPostgres(settings, lock);
    return {
      ...store,
      async close() {
        await store.close();
        await lock.release();
      },
    };
  } catch (error) {
    await lock.release();
    throw error;
  }
}

/** Returns a database whose connections are made when they are needed, each statement of which is checked against a lock. */
export function connectPostgres(settings: PostgresSettings, lock: Pick<ControllerLock, "check">): StoreDatabase {
  const scope = new TransactionScope();
  const pool = poolOf(connectionOf(settings), { ...POSTGRES_LIMITS, ...settings.limits });
  const driver = new PostgresDriver(pool, addressText(settings.address), lock, scope);
  const db = new Kysely<object>({ dialect: dialectOf(driver) });
  return {
    engine: postgresEngine,
    db,
    transactions: transactionsOf(db, scope, isConflict),
    close: () => driver.destroy(),
  };
}

function poolOf(connection: ClientConfig, { connectMs, statementMs }: PostgresLimits): Pool {
  const limits =
    statementMs === 0
      ? { statement_timeout: 0 }
      : {
          statement_timeout: statementMs,
          lock_timeout: statementMs,
          idle_in_transaction_session_timeout: 2 * statementMs,
          // For a server that does not answer at all.
          query_timeout: statementMs + connectMs,
        };
  return new Pool({
    ...connection,
    ...limits,
    max: MAX_CONNECTIONS,
    idleTimeoutMillis: IDLE_MS,
    connectionTimeoutMillis: connectMs,
    types: { getTypeParser },
  });
}

/** Types of PostgreSQL that are read otherwise than by default, by their object identifiers (pg_type.dat). */
const OID = { bool: 16, bytea: 17, int8: 20, numeric: 1700 } as const;

function getTypeParser(oid: number, format?: "text" | "binary"): unknown {
  switch (oid) {
    case OID.bool:
      return (text: string) => (text === "t" ? 1 : 0);
    case OID.bytea:
      return (text: string) => new Uint8Array(Buffer.from(text.slice(2), "hex"));
    case OID.int8:
      return readInteger;
    case OID.numeric:
      return Number;
    default:
      return format === "binary" ? types.getTypeParser(oid, format) : types.getTypeParser(oid);
  }
}

function readInteger(text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value)) return value;
  throw new InternalError("bad-row", `the integer ${text} is larger than a number holds exactly`);
}

async function checkEncoding({ db }: StoreDatabase, address: string): Promise<void> {
  const { rows } = await sql<{ readonly encoding: string }>`
    select pg_encoding_to_char(encoding) as encoding from pg_database where datname = current_database()`.execute(db);
  const [{ encoding } = { encoding: "unknown" }] = rows;
  if (encoding === "UTF8") return;
  throw unavailable(address, `its encoding ${encoding} does not hold every text; create the database with UTF8`);
}

function dialectOf(driver: Driver): Dialect {
  return {
    createDriver: () => driver,
    createAdapter: () => new StoreAdapter(),
    createQueryCompiler: () => new PostgresQueryCompiler(),
    createIntrospector: (db) => new PostgresIntrospector(db),
  };
}

class StoreAdapter extends PostgresAdapter {
  readonly engine = postgresEngine;
}

/** Runs statements on connections of a pool while the controller holds its lock. */
class PostgresDriver implements Driver {
  readonly #pool: Pool;
  readonly #address: string;
  readonly #lock: Pick<ControllerLock, "check">;
  readonly #scope: TransactionScope;

  constructor(pool: Pool, address: string, lock: Pick<ControllerLock, "check">, scope: TransactionScope) {
    this.#pool = pool;
    this.#address = address;
    this.#lock = lock;
    this.#scope = scope;
    const ignored = (): void => undefined;
    // A connection that fails while it is idle leaves the pool; one in use fails its statement.
    pool.on("error", ignored);
    pool.on("connect", (client) => client.on("error", ignored));
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<PostgresConnection> {
    this.#scope.refuseWithin();
    this.#lock.check();
    try {
      return new PostgresConnection(await this.#pool.connect(), this.#address);
    } catch (error) {
      throw storeError(error, this.#address);
    }
  }

  async releaseConnection(connection: PostgresConnection): Promise<void> {
    connection.release();
  }

  async beginTransaction(connection: PostgresConnection, { accessMode }: TransactionSettings): Promise<void> {
    const isReader = accessMode === "read only";
    await connection.run(`BEGIN ISOLATION LEVEL ${isReader ? "REPEATABLE READ READ ONLY" : "SERIALIZABLE"}`);
  }

  async commitTransaction(connection: PostgresConnection): Promise<void> {
    this.#lock.check();
    // The server answers so if a statement failed, and the work went on as if it had not.
    if ((await connection.run("COMMIT")).command !== "ROLLBACK") return;
    throw new InternalError("rolled-back", "a transaction continued after one of its statements had failed");
  }

  async rollbackTransaction(connection: PostgresConnection): Promise<void> {
    await connection.rollBack();
  }

  async destroy(): Promise<void> {
    if (!this.#pool.ending) await this.#pool.end();
  }
}

class PostgresConnection implements DatabaseConnection {
  readonly #client: PoolClient;
  readonly #address: string;
  #isBroken = false;

  constructor(client: PoolClient, address: string) {
    this.#client = client;
    this.#address = address;
  }

  async executeQuery<R>({ sql: text, parameters }: CompiledQuery): Promise<QueryResult<R>> {
    const { command, rowCount, rows } = await this.run<R>(text, parameters);
    return isWrite(command) ? { rows, numAffectedRows: BigInt(rowCount ?? 0) } : { rows };
  }

  // oxlint-disable-next-line require-yield
  async *streamQuery<R>(): AsyncIterableIterator<QueryResult<R>> {
    throw new InternalError("no-streaming", "the store reads lists whole");
  }

  async run<R>(text: string, parameters: readonly unknown[] = []) {
    try {
      return await this.#client.query<R & QueryResultRow>(text, [...parameters]);
    } catch (error) {
      this.#isBroken ||= !isConnectionUsable(error);
      throw storeError(error, this.#address);
    }
  }

  /** Rolls back; a connection that cannot is closed, and the server rolls back. */
  async rollBack(): Promise<void> {
    if (this.#isBroken) return;
    try {
      await this.run("ROLLBACK");
    } catch {
      this.#isBroken = true;
    }
  }

  release(): void {
    this.#client.release(this.#isBroken);
  }
}

const isWrite = (command: string): boolean => ["INSERT", "UPDATE", "DELETE", "MERGE"].includes(command);
