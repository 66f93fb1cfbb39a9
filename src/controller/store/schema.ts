import {
  DummyDriver,
  Kysely,
  sql,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
  type Compilable,
  type Dialect,
} from "kysely";
import { HostError, InternalError } from "../../errors.ts";
import { oldestReader, type Migration } from "../../host/files/schema.ts";
import { baseline } from "./baseline.ts";
import { sqliteEngine, type Engine, type Executor, type StoreDatabase } from "./database.ts";
import { migrations as sqliteOnly } from "./migrations.ts";

/**
 * A step of the schema for both engines: statements of the query builder without parameters (`sql.lit` for values). A step only
 * adds, or is breaking, so that older programs refuse the database. A released step is never edited.
 */
export interface SchemaStep {
  statements(db: Executor, engine: Engine): readonly Compilable[];
  readonly isBreaking?: true;
}

type AttachmentTables = {
  readonly service_user_policy: {
    readonly service_user: string;
    readonly position: number;
    readonly policy: string;
  };
  readonly attached_policy: { readonly service_user: string; readonly position: number; readonly policy: string };
};

/**
 * Keeps the names of a service user's policies in their order, whether or not a policy has the name: of one that was deleted, or that is
 * built in.
 */
const attachedPolicies: SchemaStep = {
  isBreaking: true,
  statements(executor, { types, tableEnd }) {
    const db = executor.$extendTables<AttachmentTables>();
    return [
      db.schema
        .createTable("attached_policy")
        .addColumn("service_user", types.text, (column) =>
          column.notNull().references("service_user.name").onDelete("cascade"),
        )
        .addColumn("position", types.integer, (column) => column.notNull())
        .addColumn("policy", types.text, (column) => column.notNull())
        .addPrimaryKeyConstraint("attached_policy_pkey", ["service_user", "position"])
        .modifyEnd(tableEnd.keyed),
      db
        .insertInto("attached_policy")
        .columns(["service_user", "position", "policy"])
        .expression(
          db
            .selectFrom("service_user_policy")
            .select([
              "service_user",
              sql<number>`row_number() over (partition by service_user order by position, policy)`.as("position"),
              "policy",
            ]),
        ),
      db.schema.dropTable("service_user_policy"),
    ];
  },
};

/** Steps after the baseline, one per schema version. */
export const schemaSteps: readonly SchemaStep[] = [
  {
    // Provisioning order of a license, and of the node that it registered.
    statements: (db, { types }) =>
      ["licenses", "nodes"].map((table) => db.schema.alterTable(table).addColumn("order_id", types.text)),
  },
  {
    // Status, order of policies and time of the token of a service user, and its earlier credential until a time in Unix milliseconds.
    statements: (db, { types }) => [
      db.schema
        .alterTable("service_user_policy")
        .addColumn("position", types.integer, (column) => column.notNull().defaultTo(sql.lit(0))),
      ...(
        [
          ["is_inactive", types.integer, 0],
          ["token_created", types.integer],
          ["previous_client_id", types.text],
          ["previous_secret_sha256", types.text],
          ["previous_until_ms", types.integer],
        ] as const
      ).map(([name, type, value]) =>
        db.schema
          .alterTable("service_user")
          .addColumn(name, type, (column) =>
            value === undefined ? column : column.notNull().defaultTo(sql.lit(value)),
          ),
      ),
    ],
  },
  {
    // Certificates, public keys that clients keep for nodes, and volumes of virtual machines.
    statements: (db, { types, tableEnd }) => [
      db.schema
        .createTable("certificates")
        .addColumn("fqdn", types.text, (column) => column.primaryKey().notNull())
        .addColumn("chain", types.text, (column) => column.notNull())
        .addColumn("private_key", types.text, (column) => column.notNull())
        .addColumn("reported", types.text, (column) => column.notNull())
        .modifyEnd(tableEnd.plain),
      db.schema.alterTable("nodes").addColumn("client_keys", types.text),
      db.schema
        .createTable("machine_volumes")
        .addColumn("node", types.text, (column) => column.notNull().references("nodes.uid").onDelete("cascade"))
        .addColumn("name", types.text, (column) => column.notNull())
        .addColumn("record", types.text, (column) => column.notNull())
        .addPrimaryKeyConstraint("machine_volumes_pkey", ["node", "name"])
        .modifyEnd(tableEnd.keyed),
    ],
  },
  {
    // Audits of the organization: changes and authentications.
    statements: (db, { types, tableEnd }) => [
      (
        [
          ["uid", types.text],
          ["kind", types.text],
          ["audit_type", types.text],
          ["item_type", types.text],
          ["item_id", types.text],
          ["user_name", types.text],
          ["ip", types.text],
          ["message", types.text],
          ["timestamp", types.integer],
        ] as const
      )
        .reduce(
          (table, [name, type]) => table.addColumn(name, type, (column) => column.notNull()),
          db.schema.createTable("org_audits").addColumn("seq", types.serial),
        )
        .modifyEnd(tableEnd.plain),
      db.schema.createIndex("org_audits_by_kind").on("org_audits").columns(["kind", "seq"]),
      db.schema.createIndex("org_audits_by_time").on("org_audits").columns(["kind", "timestamp"]),
    ],
  },
  attachedPolicies,
];

/** Schema version of the baseline: the one that SQLite files reach by scripts of their own. */
export const BASELINE_VERSION: number = sqliteOnly.length;

/** Returns the migrations of SQLite files, one per schema version. */
export function sqliteMigrations(steps: readonly SchemaStep[] = schemaSteps): readonly Migration[] {
  return [...sqliteOnly, ...scripts(steps)];
}

/** Returns the baseline as a script for an empty SQLite database. */
export function sqliteBaseline(): string {
  return script(baseline(compiler(), sqliteEngine));
}

function scripts(steps: readonly SchemaStep[]): Migration[] {
  const db = compiler();
  return steps.map((step) => {
    const text = script(step.statements(db, sqliteEngine));
    return step.isBreaking === true ? { sql: text, isBreaking: true } : text;
  });
}

/** Makes statements of SQLite, and runs none. */
const compiling: Dialect = {
  createDriver: () => new DummyDriver(),
  createAdapter: () => new SqliteAdapter(),
  createQueryCompiler: () => new SqliteQueryCompiler(),
  createIntrospector: (db) => new SqliteIntrospector(db),
};

const compiler = (): Executor => new Kysely<object>({ dialect: compiling });

const script = (statements: readonly Compilable[]): string =>
  statements.map((statement) => `${plain(statement)};\n`).join("");

function plain(statement: Compilable): string {
  const { sql: text, parameters } = statement.compile();
  if (parameters.length > 0) throw new InternalError("bad-step", `a step of the schema has parameters: ${text}`);
  return text;
}

type SchemaTables = {
  readonly holdfast_schema: { readonly id: number; readonly version: number; readonly compatible_from: number };
};

/** Returns the version of a store's schema; undefined for an empty PostgreSQL database. */
export async function schemaOf({ db, engine }: Pick<StoreDatabase, "db" | "engine">): Promise<number | undefined> {
  if (engine.name === "sqlite") {
    const { rows } = await sql<{ readonly user_version: number }>`pragma user_version`.execute(db);
    return rows[0]?.user_version;
  }
  const { rows } = await sql<{ readonly found: number }>`select count(*) as found from pg_class
    where relname = 'holdfast_schema' and relnamespace = current_schema()::regnamespace`.execute(db);
  if (rows[0]?.found !== 1) return undefined;
  return (await db.$extendTables<SchemaTables>().selectFrom("holdfast_schema").select("version").executeTakeFirst())
    ?.version;
}

/**
 * Brings a PostgreSQL database up to date, each version in one transaction: after a crash it continues where it stopped. The caller holds
 * the lock of the controller.
 * @throws {HostError} `state-too-new` if a newer version left it, and this version cannot use it
 */
export async function migrateShared(
  { db, engine, transactions }: StoreDatabase,
  steps: readonly SchemaStep[] = schemaSteps,
): Promise<void> {
  const known = BASELINE_VERSION + steps.length;
  const versions = db.$extendTables<SchemaTables>();
  await db.schema
    .createTable("holdfast_schema")
    .ifNotExists()
    .addColumn("id", engine.types.integer, (column) => column.primaryKey().check(sql`id = 1`))
    .addColumn("version", engine.types.integer, (column) => column.notNull())
    .addColumn("compatible_from", engine.types.integer, (column) => column.notNull())
    .execute();
  const found = await versions.selectFrom("holdfast_schema").selectAll().executeTakeFirst();
  if (found !== undefined && found.version > known) {
    if (found.compatible_from <= known) return;
    throw new HostError(
      "state-too-new",
      `the store was written by a newer version (schema ${found.version} that programs from schema ${found.compatible_from} on ` +
        `can use; this program knows ${known})`,
      { details: { schema: found.version, known } },
    );
  }
  for (let version = (found?.version ?? BASELINE_VERSION - 1) + 1; version <= known; version += 1) {
    const compatibleFrom = oldestReader(sqliteMigrations(steps).slice(0, version));
    await transactions.run(async (tx) => {
      const step = steps[version - BASELINE_VERSION - 1];
      const statements = step === undefined ? baseline(tx, engine) : step.statements(tx, engine);
      for (const statement of statements) await sql.raw(plain(statement)).execute(tx);
      const row = { version, compatible_from: compatibleFrom };
      await tx
        .$extendTables<SchemaTables>()
        .insertInto("holdfast_schema")
        .values({ id: 1, ...row })
        .onConflict((conflict) => conflict.column("id").doUpdateSet(row))
        .execute();
    });
  }
}
