import { join, resolve } from "node:path";
import { sql } from "kysely";
import { AgentError, InputError, toError } from "../../errors.ts";
import { hostFiles } from "../../host/files/files.ts";
import { beginReplacement, completeReplacement, type Replacement } from "../../host/files/replacement.ts";
import type { Executor, OpenTransaction, StoreDatabase } from "../store/database.ts";
import { metaStore } from "../store/meta.ts";
import { sqliteMigrations } from "../store/schema.ts";
import { buildSqliteStore, openSqliteAsIs, openSqliteStore } from "../store/sqlite.ts";
import { clearTables, copyTables, insertRows, tablesOf } from "../store/tables.ts";
import { openBackup, type OpenBackup } from "./backup-file.ts";
import type { MaintenanceDeps } from "./backup.ts";
import {
  checkSchema,
  checkSource,
  DATABASE,
  hasDatabase,
  hasNodeKeys,
  isContent,
  isKeyFile,
  KEY_PARTS,
  keyFilesOf,
  openPostgres,
  openTarget,
  placeText,
  type Place,
  type Target,
} from "./places.ts";

export interface ReplaceOptions {
  /** Whether a store that is not empty is replaced. */
  readonly isReplaced: boolean;
}

/**
 * Puts a backup in the place of a store, its keys and its certificates. Documents get versions above all that a node can have seen
 * since the backup. A crash at any moment leaves what was there or what was restored.
 * @throws {InputError} `not-a-backup`, `backup-too-new`, `backup-damaged`, `store-not-empty`; {HostError} `state-too-new`,
 *   `state-locked`, `store-unavailable` or the disk's reason. Nothing is changed then.
 */
export async function restore(
  path: string,
  place: Place,
  options: ReplaceOptions,
  deps: MaintenanceDeps,
): Promise<void> {
  const { clock, signal } = deps;
  const opened = await openBackup(path);
  checkSchema(opened.header.schema, path);
  await prepareDirectory(place.dataDir);
  await using stack = new AsyncDisposableStack();
  const target = stack.adopt(await openTarget(place, { ...options, hasKeys: true, clock }), (held) => held.close());
  const databases = target.kind === "file" ? [DATABASE] : [];
  const staged = await beginReplacement(place.dataDir, { ...KEY_PARTS, databases });
  const file = staged.pathOf(DATABASE);
  try {
    await buildSqliteStore(file, opened.header.schema, async (tx) => {
      await readInto(path, opened, staged, tx, signal);
      await raiseVersions(tx, Math.floor(clock.now() / 1000));
    });
    await staged.seal();
  } catch (error) {
    await staged.discard();
    signal.throwIfAborted();
    throw error instanceof AgentError ? error : unfit(path, error);
  }
  if (target.kind === "postgres") {
    const store = stack.adopt(openSqliteAsIs(file), (built) => built.close());
    await store.transactions.snapshot((from) => fillPostgres(target.store, from, staged.id));
  }
  await finish(place, staged);
}

function unfit(path: string, error: unknown): InputError {
  return new InputError("backup-damaged", `${path} is damaged: ${toError(error).message}; nothing was changed`, {
    cause: error,
  });
}

async function readInto(
  path: string,
  opened: OpenBackup,
  staged: Replacement,
  tx: OpenTransaction,
  signal: AbortSignal,
): Promise<void> {
  const files: string[] = [];
  const tables = new Set((await tablesOf(tx)).map(({ name }) => name));
  for await (const part of opened.parts()) {
    signal.throwIfAborted();
    if (part.kind === "file") {
      if (!isKeyFile(part.name)) throw unfit(path, new Error(`it has the file ${JSON.stringify(part.name)}`));
      await staged.write(part.name, part.text);
      files.push(part.name);
    } else {
      if (!tables.has(part.table)) throw unfit(path, new Error(`it has the table ${JSON.stringify(part.table)}`));
      await insertRows(tx, part.table, part.rows);
    }
  }
  if (!hasNodeKeys(files)) throw unfit(path, new Error("it has no keys, without which nodes refuse the controller"));
  if ((await metaStore(tx).get("org")) === undefined) throw unfit(path, new Error("it names no organization"));
}

type DocumentTables = {
  readonly documents: { readonly version: number; readonly jws: string | null; readonly seal: string | null };
};

/**
 * Raises the versions of all documents, and of those to come, to a time that the lost ones did not reach: nodes refuse versions below
 * those that they have, and would keep other content of an equal one.
 */
async function raiseVersions(tx: OpenTransaction, seconds: number): Promise<void> {
  await tx
    .$extendTables<DocumentTables>()
    .updateTable("documents")
    .set({ version: sql`max(version + 1, ${seconds})`, jws: null, seal: null })
    .execute();
  await metaStore(tx).set("document-floor", String(seconds));
}

/**
 * Moves the content of a store to another one, with the keys and certificates if the data directory is another one, too. The former
 * store is marked, so that no controller starts on it. A crash at any moment leaves the target as it was, or whole.
 * @throws as `restore`; {InputError} `store-empty`, `store-moved`
 */
export async function migrate(from: Place, to: Place, options: ReplaceOptions, deps: MaintenanceDeps): Promise<void> {
  const { clock } = deps;
  if (placeText(from) === placeText(to)) {
    throw new InputError("usage", `both stores are ${placeText(to)}; give another --to, or another --to-data`);
  }
  const hasKeys = from.dataDir !== to.dataDir;
  await completeReplacement(from.dataDir);
  await using stack = new AsyncDisposableStack();
  const source = stack.adopt(await openSource(from, deps), (store) => store.close());
  await checkSource(source, from);
  await prepareDirectory(to.dataDir);
  const target = stack.adopt(await openTarget(to, { ...options, hasKeys, clock }), (held) => held.close());
  const parts = hasKeys ? KEY_PARTS : { folders: [], files: [], databases: [] };
  const databases = target.kind === "file" ? [DATABASE] : [];
  const staged = await beginReplacement(to.dataDir, { ...parts, databases });
  await source.transactions.snapshot((tx) => fill(target, staged, tx, hasKeys ? from.dataDir : undefined));
  await finish(to, staged);
  await metaStore(source.db).set("moved-to", placeText(to));
}

async function fill(
  target: Target,
  staged: Replacement,
  tx: OpenTransaction,
  keysFrom: string | undefined,
): Promise<void> {
  try {
    for (const { name, text } of keysFrom === undefined ? [] : await keyFilesOf(keysFrom))
      await staged.write(name, text);
    if (target.kind === "file") {
      const schema = sqliteMigrations().length;
      await buildSqliteStore(staged.pathOf(DATABASE), schema, (into) => copyTables(tx, into, isContent));
    }
    await staged.seal();
  } catch (error) {
    await staged.discard();
    throw error;
  }
  if (target.kind === "postgres") await fillPostgres(target.store, tx, staged.id);
}

/**
 * Replaces the content of a PostgreSQL store in one transaction, which also names the staged files that belong to it. If it fails they
 * stay: the server may have committed it all the same, and then the controller finds both.
 */
function fillPostgres(target: StoreDatabase, from: Executor, id: string): Promise<void> {
  return target.transactions.run(async (tx) => {
    await clearTables(tx);
    await copyTables(from, tx, isContent);
    await metaStore(tx).set("restored", id);
  });
}

async function finish({ dataDir }: Place, staged: Replacement): Promise<void> {
  await staged.commit();
  await completeReplacement(dataDir);
}

async function openSource(place: Place, { clock }: MaintenanceDeps): Promise<StoreDatabase> {
  if (place.postgres !== undefined) return openPostgres(place.postgres, clock);
  if (!(await hasDatabase(place.dataDir))) throw new InputError("store-empty", `${placeText(place)} does not exist`);
  return openSqliteStore(join(place.dataDir, DATABASE), true);
}

/** Makes a data directory, and completes what an earlier restore into it left. */
async function prepareDirectory(dataDir: string): Promise<void> {
  await hostFiles().makeDirectory(resolve(dataDir), 0o700);
  await completeReplacement(dataDir);
}
