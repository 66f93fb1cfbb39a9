import { hostname } from "node:os";
import { join } from "node:path";
import { AgentError, HostError, InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { hostFiles } from "../../host/files/files.ts";
import { lockDatabase, type ReplacedParts } from "../../host/files/replacement.ts";
import type { StoreDatabase } from "../store/database.ts";
import { metaStore } from "../store/meta.ts";
import { addressText, type PostgresSettings } from "../store/postgres-settings.ts";
import { schemaOf, sqliteMigrations } from "../store/schema.ts";
import type { StoredRow } from "../store/tables.ts";

/** A controller's data directory and its store: a file in the directory, or a PostgreSQL database. */
export interface Place {
  /** Absolute path. */
  readonly dataDir: string;
  readonly postgres: PostgresSettings | undefined;
}

/** File of the embedded store in a data directory. */
export const DATABASE = "controller.db";

/** Files that a controller needs besides its store, for nodes to accept it and for encrypted volumes to open. */
export const KEY_PARTS: ReplacedParts = { folders: ["keys", "tls", "registry"], files: ["admin.key"], databases: [] };

/** Names a store in messages. */
export function placeText({ dataDir, postgres }: Place): string {
  return postgres === undefined ? join(dataDir, DATABASE) : addressText(postgres.address);
}

/** Reports whether a file of this name may be in a backup. */
export function isKeyFile(name: string): boolean {
  const [folder = "", file = "", ...rest] = name.split("/");
  if (rest.length > 0 || file.startsWith(".")) return false;
  return file === "" ? KEY_PARTS.files.includes(name) : KEY_PARTS.folders.includes(folder);
}

/** Reports whether the root key or the signing key is among the files; nodes know a controller by them. */
export const hasNodeKeys = (names: readonly string[]): boolean =>
  names.includes("keys/root.jwk") || names.includes("keys/signing.jwk");

/** Returns the keys and certificates of a data directory. */
export async function keyFilesOf(
  dataDir: string,
): Promise<readonly { readonly name: string; readonly text: string }[]> {
  const files = hostFiles();
  const names: string[] = [...KEY_PARTS.files];
  for (const folder of KEY_PARTS.folders) {
    for (const file of await files.list(join(dataDir, folder)))
      if (!file.endsWith(".tmp")) names.push(`${folder}/${file}`);
  }
  const found: { readonly name: string; readonly text: string }[] = [];
  for (const name of names.sort()) {
    const text = await files.read(join(dataDir, name));
    if (text !== undefined) found.push({ name, text });
  }
  return found;
}

export async function hasDatabase(dataDir: string): Promise<boolean> {
  return (await hostFiles().list(dataDir)).includes(DATABASE);
}

/**
 * Opens a PostgreSQL store as its only controller, and brings its schema up to date.
 * @throws as `openPostgresStore`
 */
export async function openPostgres(settings: PostgresSettings, clock: Clock): Promise<StoreDatabase> {
  // Loaded only where it is used.
  const { openPostgresStore } = await import("../store/postgres.ts");
  const startedAt = new Date(clock.now()).toISOString();
  const holder = { name: hostname(), address: "a backup, restore or migration", startedAt };
  // Every statement of a large store may take its time.
  const limits = { ...settings.limits, statementMs: 0 };
  return openPostgresStore({ settings: { ...settings, limits }, holder, clock, onTakenOver: () => undefined });
}

/** Opens a PostgreSQL store to read it, also beside the controller that uses it. */
export async function readPostgres(settings: PostgresSettings): Promise<StoreDatabase> {
  const { connectPostgres } = await import("../store/postgres.ts");
  const limits = { ...settings.limits, statementMs: 0 };
  return connectPostgres({ ...settings, limits }, { check: () => undefined });
}

/**
 * Checks that a store has a controller's content that this program knows. Returns the version of its schema.
 * @throws {HostError} `state-too-new`; {InputError} `store-empty`, `store-moved`
 */
export async function checkSource(store: StoreDatabase, place: Place): Promise<number> {
  const schema = await schemaOf(store);
  checkSchema(schema ?? 0, placeText(place));
  const meta = metaStore(store.db);
  if (schema === undefined || schema === 0 || (await meta.get("org")) === undefined) {
    throw new InputError("store-empty", `the store ${placeText(place)} is empty: no controller has used it`);
  }
  await checkNotMoved(store, placeText(place));
  return schema;
}

/** @throws {HostError} `state-too-new` */
export function checkSchema(schema: number, what: string): void {
  const known = sqliteMigrations().length;
  if (schema <= known) return;
  throw new HostError(
    "state-too-new",
    `${what} was written by a newer version (schema ${schema}; this program knows ${known}); use that version`,
    { details: { schema, known } },
  );
}

/** @throws {InputError} `store-moved` if the content of a store was migrated to another one */
export async function checkNotMoved({ db }: Pick<StoreDatabase, "db">, what: string): Promise<void> {
  const movedTo = await metaStore(db).get("moved-to");
  if (movedTo === undefined) return;
  throw new InputError(
    "store-moved",
    `the store ${what} was migrated to ${movedTo} and is out of date: use that one (--store), or restore a backup with --replace`,
  );
}

/** Reports whether a row belongs to a store's content, rather than to the store itself. */
export function isContent(table: string, row: StoredRow): boolean {
  return table !== "meta" || (row["key"] !== "moved-to" && row["key"] !== "restored");
}

/** The store that a restore or a migration fills. */
export type Target =
  | { readonly kind: "file"; close(): Promise<void> }
  | { readonly kind: "postgres"; readonly store: StoreDatabase; close(): Promise<void> };

/**
 * Locks a store that is to be filled.
 * @param hasKeys whether the keys of its data directory are replaced, too
 * @throws {InputError} `store-not-empty` unless it is to be replaced; {HostError} `state-locked` if a controller uses it
 */
export async function openTarget(
  place: Place,
  { isReplaced, hasKeys, clock }: { readonly isReplaced: boolean; readonly hasKeys: boolean; readonly clock: Clock },
): Promise<Target> {
  const { dataDir, postgres } = place;
  const refuse = (what: string): never => {
    throw new InputError("store-not-empty", `${what} is not empty; give --replace to discard its content`);
  };
  if (hasKeys && !isReplaced && (await keyFilesOf(dataDir)).length > 0) refuse(dataDir);
  if (postgres === undefined) {
    if (!(await hasDatabase(dataDir))) return { kind: "file", close: async () => undefined };
    if (!isReplaced) refuse(placeText(place));
    const held = lockUnlessDamaged(join(dataDir, DATABASE));
    return { kind: "file", close: async () => held?.close() };
  }
  const store = await openPostgres(postgres, clock);
  try {
    if (!isReplaced && !(await isEmpty(store))) refuse(`the store ${placeText(place)}`);
  } catch (error) {
    await store.close();
    throw error;
  }
  return { kind: "postgres", store, close: () => store.close() };
}

/** A damaged file may be what is to be replaced; no controller starts on it. */
function lockUnlessDamaged(path: string) {
  try {
    return lockDatabase(path);
  } catch (error) {
    if (error instanceof AgentError && error.code === "state-damaged") return undefined;
    throw error;
  }
}

/** Reports whether no controller has used a store. */
export async function isEmpty({ db }: StoreDatabase): Promise<boolean> {
  return (await metaStore(db).get("org")) === undefined;
}
