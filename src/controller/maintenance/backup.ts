import { basename, dirname, join } from "node:path";
import { AgentError, InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { hostFiles } from "../../host/files/files.ts";
import { buildInfo } from "../../lib/build-info.ts";
import type { Executor, StoreDatabase } from "../store/database.ts";
import { openSqliteAsIs } from "../store/sqlite.ts";
import { pagesOf, tablesOf } from "../store/tables.ts";
import { writeBackup, type BackupPart } from "./backup-file.ts";
import {
  checkSource,
  DATABASE,
  hasDatabase,
  hasNodeKeys,
  isContent,
  keyFilesOf,
  placeText,
  readPostgres,
  type Place,
} from "./places.ts";
import { requestSnapshot } from "./snapshots.ts";

export interface MaintenanceDeps {
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

/**
 * Writes a controller's store, keys and certificates to a new file, whether the controller runs or not. Returns its size in bytes.
 * @throws {InputError} `exists`, `store-empty`, `store-moved`; {HostError} `state-too-new`, `state-damaged`, `store-unavailable`
 *   or the disk's reason
 */
export async function backup(path: string, place: Place, { clock, signal }: MaintenanceDeps): Promise<number> {
  if ((await hostFiles().list(dirname(path))).includes(basename(path))) {
    throw new InputError("exists", `${path} already exists; choose another name`);
  }
  await using stack = new AsyncDisposableStack();
  // A key comes into being before the store refers to it.
  const keys = await keyFilesOf(place.dataDir);
  if (!hasNodeKeys(keys.map(({ name }) => name))) {
    const message = `${place.dataDir} has no keys of a controller, without which its nodes refuse it; give its directory by --data`;
    throw new InputError("store-empty", message);
  }
  const source = await openSource(place, stack);
  const schema = await checkSource(source, place);
  const header = {
    format: "holdfast-controller-backup",
    version: 1,
    schema,
    engine: source.engine.name,
    program: buildInfo.version,
    createdAt: new Date(clock.now()).toISOString(),
  } as const;
  // Awaited here: the source closes with this function.
  return await source.transactions.snapshot((tx) => writeBackup(path, header, partsOf(keys, tx), signal));
}

async function openSource(place: Place, stack: AsyncDisposableStack): Promise<StoreDatabase> {
  const opened = (store: StoreDatabase) => stack.adopt(store, (closing) => closing.close());
  if (place.postgres !== undefined) return opened(await readPostgres(place.postgres));
  if (!(await hasDatabase(place.dataDir))) {
    throw new InputError(
      "store-empty",
      `${placeText(place)} does not exist; give --data, or --store if the store is in PostgreSQL`,
    );
  }
  try {
    return opened(openSqliteAsIs(join(place.dataDir, DATABASE)));
  } catch (error) {
    if (!(error instanceof AgentError) || error.code !== "state-locked") throw error;
  }
  const snapshot = await requestSnapshot(place.dataDir);
  stack.defer(() => snapshot.release());
  return opened(openSqliteAsIs(snapshot.path));
}

async function* partsOf(
  keys: readonly { readonly name: string; readonly text: string }[],
  db: Executor,
): AsyncGenerator<BackupPart> {
  for (const { name, text } of keys) yield { kind: "file", name, text };
  for (const table of await tablesOf(db)) {
    for await (const page of pagesOf(db, table)) {
      const rows = page.filter((row) => isContent(table.name, row));
      if (rows.length > 0) yield { kind: "rows", table: table.name, rows };
    }
  }
}
