import { randomUUID } from "node:crypto";
import { DatabaseSync } from "node:sqlite";
import { sql } from "kysely";
import { inject, onTestFinished } from "vitest";
import type { Clock } from "../../../src/host/clock.ts";
import { migrateSchema } from "../../../src/host/files/schema.ts";
import type { StoreDatabase } from "../../../src/controller/store/database.ts";
import { connectPostgres } from "../../../src/controller/store/postgres.ts";
import type { PostgresAddress } from "../../../src/controller/store/postgres-settings.ts";
import { sqliteMigrations } from "../../../src/controller/store/schema.ts";
import { storeOver } from "../../../src/controller/store/sqlite.ts";
import { storeIn, type Store } from "../../../src/controller/stores.ts";
import type { SharedPostgres } from "./postgres-project.ts";

/** A controller's store that is gone with its test. */
export interface TestStore extends Store {
  readonly database: StoreDatabase;
  /** Runs one statement that both engines understand. */
  query<Row = Record<string, unknown>>(text: string): Promise<readonly Row[]>;
}

/** Opens an empty store: in memory, or, in the project `postgres`, in a database of the running test. */
export async function openTestStore(clock?: Clock): Promise<TestStore> {
  const database = (await lendDatabase())?.database ?? emptyMemoryStore();
  return {
    ...storeIn(database, clock),
    database,
    query: async <Row>(text: string) => (await sql.raw<Row>(text).execute(database.db)).rows,
  };
}

/** A store of a test of its own, closed at its end. */
export async function freshStore(): Promise<TestStore> {
  const store = await openTestStore();
  onTestFinished(() => store.close());
  return store;
}

/** The image of a database with empty tables: making the tables takes 15 ms, copying them less than 1 ms. */
const EMPTY_IMAGE = imageOf(sqliteMigrations());

function imageOf(migrations: Parameters<typeof migrateSchema>[1]): Uint8Array {
  const database = new DatabaseSync(":memory:");
  migrateSchema(database, migrations);
  const image = database.serialize();
  database.close();
  return image;
}

function emptyMemoryStore(): StoreDatabase {
  const database = new DatabaseSync(":memory:");
  database.deserialize(EMPTY_IMAGE);
  return storeOver(database);
}

/** A database on PostgreSQL with empty tables. */
interface LentDatabase {
  /** Stays open beyond the test, since connections cost more than most tests. */
  readonly database: StoreDatabase;
  readonly address: PostgresAddress;
}

/** Databases of this worker that no test uses. */
const free: LentDatabase[] = [];

const UNLOCKED = { check: () => undefined };

/** Empties the tables; foreign keys do not matter meanwhile. */
const EMPTY = sql.raw(`do $$ declare t regclass; begin
  set local session_replication_role = replica;
  for t in select oid from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace
    and relname <> 'holdfast_schema' and pg_relation_size(oid) > 0
  loop
    if pg_relation_size(t) > 1000000 then execute format('truncate %s cascade', t);
    else execute format('delete from %s', t);
    end if;
  end loop;
end $$`);

/** Returns a database for the running test, which only this test uses; undefined outside the project `postgres`. */
export async function lendDatabase(): Promise<LentDatabase | undefined> {
  const shared = inject("postgres");
  if (shared === undefined) return undefined;
  const lent = free.pop() ?? (await createDatabase(shared));
  onTestFinished(async () => {
    await EMPTY.execute(lent.database.db);
    free.push(lent);
  });
  return lent;
}

async function createDatabase({ host, port, user, template }: SharedPostgres): Promise<LentDatabase> {
  const addressOf = (database: string): PostgresAddress => ({ host, port, user, database, isVerified: false });
  const database = `test_${randomUUID().replaceAll("-", "")}`;
  const admin = connectPostgres({ address: addressOf("postgres") }, UNLOCKED);
  await sql.raw(`create database ${database} template ${template}`).execute(admin.db);
  await admin.close();
  const opened = connectPostgres({ address: addressOf(database) }, UNLOCKED);
  return { address: addressOf(database), database: { ...opened, close: () => Promise.resolve() } };
}
