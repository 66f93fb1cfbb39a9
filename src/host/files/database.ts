import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  mkdtempSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { errnoOf, HostError, toError } from "../../errors.ts";
import { createWhole, removeAttempts } from "./new-database.ts";
import { migrateSchema, schemaVersion, type Migration } from "./schema.ts";
import { readRegularFileSync } from "./regular-file.ts";
import { isLogDamaged } from "./write-ahead-log.ts";

export interface DatabaseOptions {
  /** One step per schema version, in order. `user_version` holds the number of steps applied. `as-is` leaves the schema unchanged. */
  readonly migrations: readonly Migration[] | "as-is";
  /** Locks the file for this process, so that a second program on the same state is refused. */
  readonly exclusive: boolean;
  /** Action on a damaged file: start a new one and set the damaged one aside, or throw and change nothing. */
  readonly onDamage?: "begin-anew" | "refuse";
  /** Action on a file that a newer version wrote and this version cannot use; `refuse` by default. */
  readonly onNewer?: "begin-anew" | "refuse";
  /** Whether the file must have content, so that an empty one is damaged. */
  readonly isExpected?: boolean;
}

/** An open database and the repairs made while opening it. */
export interface Database {
  readonly sql: DatabaseSync;
  /** False if the disk refuses writes: the content is a copy in memory and is lost at exit. */
  readonly isPersistent: boolean;
  /** Path of the damaged file that was set aside. */
  readonly damagedCopy: string | undefined;
  /** Path of a newer version's file that was set aside; rows that fit this version's tables were copied. */
  readonly newerCopy: string | undefined;
  /**
   * Whether committed transactions at the end are lost because the write-ahead log was damaged. A copy of the log is at
   * `<path>-wal.damaged`.
   */
  readonly isLogDamaged: boolean;
  /** Whether the database was empty before it was opened. */
  readonly isNew: boolean;
}

const HEADER = Buffer.from("SQLite format 3\0");
const SQLITE_BUSY = 5;
const SQLITE_READONLY = 8;
const SQLITE_IOERR = 10;
const SQLITE_CORRUPT = 11;
const SQLITE_FULL = 13;
const SQLITE_CANTOPEN = 14;
const SQLITE_NOTADB = 26;
/** Limit of a write-ahead log that is read; the log between two checkpoints is far smaller. */
const MAX_LOG_BYTES = 64 * 1024 * 1024;

/**
 * Opens a SQLite file durably (WAL, `synchronous=FULL`) and brings its schema up to date. Uses a newer schema unchanged if the
 * schema allows this version. Sets a damaged file aside as `<path>.damaged` and starts a new one. Copies the content into memory
 * if the disk refuses writes. A full disk does not prevent opening: a file with a current schema is opened without a write.
 * @throws {HostError} `state-locked` if another process holds it, `state-too-new` if a newer version wrote it and `onNewer` is
 *   `refuse`, `state-damaged` if it is damaged and `onDamage` is `refuse`.
 */
export function openDatabase(path: string, options: DatabaseOptions): Database {
  const damagedLog = options.exclusive ? readDamagedLog(`${path}-wal`) : undefined;
  if (damagedLog !== undefined && options.onDamage === "refuse") throw stateDamaged(`${path}-wal`);
  const database = openOrReplace(path, options);
  if (damagedLog === undefined) return database;
  if (database.isPersistent) keepCopy(`${path}-wal.damaged`, damagedLog);
  return { ...database, isLogDamaged: true };
}

function openOrReplace(path: string, options: DatabaseOptions): Database {
  try {
    return { ...openFile(path, options), isPersistent: true, ...NOTHING_AMISS };
  } catch (error) {
    if (error instanceof HostError && error.code === "state-too-new" && options.onNewer === "begin-anew") {
      return succeedNewer(path, options);
    }
    switch (sqliteCode(error)) {
      case SQLITE_BUSY:
        throw new HostError("state-locked", `${path} is held by another process; end that process first`, {
          cause: error,
          details: { path },
        });
      case SQLITE_CORRUPT:
      case SQLITE_NOTADB:
        if (options.onDamage !== "refuse") return beginAnew(path, options);
        throw stateDamaged(path, error);
      case SQLITE_READONLY:
      case SQLITE_CANTOPEN:
      case SQLITE_IOERR:
      case SQLITE_FULL:
        return openInMemory(path, options);
      default:
        throw error instanceof HostError ? error : wrap(path, error);
    }
  }
}

const NOTHING_AMISS = { damagedCopy: undefined, newerCopy: undefined, isLogDamaged: false } as const;

export function stateDamaged(path: string, cause?: unknown): HostError {
  return new HostError(
    "state-damaged",
    `${path} is damaged and was left unchanged; restore it from a backup, or move it away to start with an empty one`,
    { cause, details: { path } },
  );
}

/** Returns the write-ahead log that a crash left, if it is damaged. SQLite overwrites the log once it opens the database. */
export function readDamagedLog(path: string): Buffer | undefined {
  try {
    const log = readRegularFileSync(path, MAX_LOG_BYTES);
    return isLogDamaged(log) ? log : undefined;
  } catch {
    return undefined; // Opening the database reports a read error.
  }
}

function keepCopy(path: string, content: Buffer): void {
  try {
    writeFileSync(path, content, { mode: 0o600 });
  } catch {
    // The database works without the copy if the disk refuses the write.
  }
}

/** Returns the primary result code of a failed SQLite call (https://sqlite.org/rescode.html), or undefined. */
export function sqliteCode(error: unknown): number | undefined {
  if (errnoOf(error) !== "ERR_SQLITE_ERROR" || !(error instanceof Error) || !("errcode" in error)) return undefined;
  return typeof error.errcode === "number" ? error.errcode & 0xff : undefined;
}

const REFUSED: ReadonlySet<number | undefined> = new Set([SQLITE_FULL, SQLITE_READONLY, SQLITE_IOERR]);

/** Returns `storage-unavailable` for a SQLite error that says that the disk refuses writes; undefined for any other error. */
export function storageError(error: unknown): HostError | undefined {
  if (!REFUSED.has(sqliteCode(error))) return undefined;
  const { message } = toError(error);
  return new HostError("storage-unavailable", `the database cannot be written: ${message}`, { cause: error });
}

/** Reports whether SQLite failed for lack of disk space. */
export function isDiskFull(error: unknown): boolean {
  return sqliteCode(error) === SQLITE_FULL;
}

/** Checkpoints the write-ahead log into the database to reuse its space. Ignores failures. */
export function recycleLog(sql: DatabaseSync): void {
  try {
    sql.exec("PRAGMA wal_checkpoint(RESTART)");
  } catch {
    // The log stays as it is if the disk has no room.
  }
}

/** Runs `work` in one transaction, which rolls back if `work` throws. */
export function transaction<T>(sql: DatabaseSync, work: () => T): T {
  sql.exec("BEGIN IMMEDIATE");
  try {
    const result = work();
    sql.exec("COMMIT");
    return result;
  } catch (error) {
    // After some failures (a full disk) SQLite has already rolled back, and a second rollback is an error.
    if (sql.isTransaction) sql.exec("ROLLBACK");
    throw error;
  }
}

/** Runs `work` in the open transaction, or in a new one if none is open. */
export function atomic<T>(sql: DatabaseSync, work: () => T): T {
  return sql.isTransaction ? work() : transaction(sql, work);
}

/**
 * Runs `work` with commits that do not wait for the disk (`synchronous=NORMAL` with a write-ahead log). A power cut may lose
 * these commits but not earlier ones; a crash of the program loses nothing. For data that is rewritten often; not within a
 * transaction.
 */
export function unsynced<T>(sql: DatabaseSync, work: () => T): T {
  sql.exec("PRAGMA synchronous=NORMAL");
  try {
    return work();
  } finally {
    sql.exec("PRAGMA synchronous=FULL");
  }
}

type Opened = Pick<Database, "sql" | "isNew">;

function openFile(path: string, options: DatabaseOptions, carry?: (sql: DatabaseSync) => void): Opened {
  const isNew = !existsSync(path) && !existsSync(`${path}-wal`) && options.isExpected !== true;
  const fill = (sql: DatabaseSync): void => {
    migrate(sql, path, options.migrations);
    carry?.(sql);
  };
  if (isNew) createWhole(path, fill);
  else removeAttempts(path);
  const opened = openExisting(path, options);
  return isNew ? { ...opened, isNew } : opened;
}

function openExisting(path: string, options: DatabaseOptions): Opened {
  // SQLite would also detect this, but would remove the write-ahead log, which may be all that is left.
  if (!hasHeader(path, options.isExpected === true)) throw damaged("file is not a database", SQLITE_NOTADB);
  const sql = new DatabaseSync(path, { timeout: options.exclusive ? 0 : 5000 });
  try {
    if (options.exclusive) sql.exec("PRAGMA locking_mode=EXCLUSIVE");
    sql.exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; PRAGMA cache_size=-512");
    chmodSync(path, 0o600);
    const isNew = migrate(sql, path, options.migrations) === 0;
    const check = sql.prepare("PRAGMA quick_check(1)").get();
    if (check?.["quick_check"] !== "ok") {
      throw damaged("quick_check failed", SQLITE_CORRUPT);
    }
    return { sql, isNew };
  } catch (error) {
    sql.close();
    throw error;
  }
}

/** Reports whether a file starts with the SQLite header. Also true if the file is missing, is a directory, or is empty and may be. */
function hasHeader(path: string, isExpected: boolean): boolean {
  const found = statSync(path, { throwIfNoEntry: false });
  // SQLite itself refuses a directory. It would block on a pipe or a device.
  if (found === undefined || found.isDirectory()) return true;
  if (!found.isFile()) return false;
  const file = openSync(path, "r");
  try {
    const header = Buffer.alloc(HEADER.length);
    return (readSync(file, header) === 0 && !isExpected) || header.equals(HEADER);
  } finally {
    closeSync(file);
  }
}

function damaged(message: string, errcode: number): Error {
  return Object.assign(new Error(message), { code: "ERR_SQLITE_ERROR", errcode });
}

/** Brings the schema up to date and returns the earlier version. */
function migrate(sql: DatabaseSync, path: string, migrations: DatabaseOptions["migrations"]): number {
  if (migrations === "as-is") return schemaVersion(sql);
  // Taking the write lock first makes a second process fail here instead of midway.
  return transaction(sql, () => {
    const done = schemaVersion(sql);
    const newer = migrateSchema(sql, migrations);
    if (newer === undefined) return done;
    const { version, compatibleFrom } = newer;
    const from = compatibleFrom === undefined ? "" : ` that programs from schema ${compatibleFrom} on can use`;
    throw new HostError(
      "state-too-new",
      `${path} was written by a newer version (schema ${version}${from}; this program knows ${migrations.length})`,
      { details: { path, schema: version, known: migrations.length } },
    );
  });
}

/** Sets a newer version's file aside and starts a new one with the rows that fit. */
function succeedNewer(path: string, options: DatabaseOptions): Database {
  const newerCopy = `${path}.newer`;
  try {
    setAside(path, newerCopy);
    const opened = openFile(path, options, (sql) => copyContent(sql, pathToFileURL(newerCopy), { isLenient: true }));
    return { ...opened, isPersistent: true, ...NOTHING_AMISS, newerCopy };
  } catch {
    // If the disk refuses the rename, the file stays and a copy in memory is used.
    return { ...openInMemory(path, options), newerCopy: path };
  }
}

/** Sets a damaged file aside, with its write-ahead log under the name that SQLite expects, and starts a new one. */
function beginAnew(path: string, options: DatabaseOptions): Database {
  const damagedCopy = `${path}.damaged`;
  try {
    setAside(path, damagedCopy);
    return { ...openFile(path, options), isPersistent: true, ...NOTHING_AMISS, damagedCopy };
  } catch {
    // If the disk refuses the rename, the damaged file stays.
    return { ...openInMemory(path, options), damagedCopy: path };
  }
}

function setAside(path: string, copy: string): void {
  for (const suffix of ["", "-wal"]) {
    rmSync(copy + suffix, { force: true });
    if (existsSync(path + suffix)) renameSync(path + suffix, copy + suffix);
  }
  rmSync(`${path}-shm`, { force: true });
}

function openInMemory(path: string, options: DatabaseOptions): Database {
  const sql = new DatabaseSync(":memory:");
  migrate(sql, path, options.migrations);
  const database = { sql, isPersistent: false, ...NOTHING_AMISS, isNew: !existsSync(path) };
  if (database.isNew) return database;
  // SQLite ignores the write-ahead log of a file opened as immutable, so a copy is opened.
  let directory: string | undefined;
  try {
    directory = mkdtempSync(join(tmpdir(), "holdfast-"));
    copyContent(sql, pathToFileURL(copyInto(directory, path)));
  } catch {
    copyImmutable(sql, path);
  } finally {
    if (directory !== undefined) rmSync(directory, { recursive: true, force: true });
  }
  return database;
}

function copyInto(directory: string, path: string): string {
  const target = join(directory, "copy.db");
  for (const suffix of ["", "-wal"]) {
    if (existsSync(path + suffix)) copyFileSync(path + suffix, target + suffix);
  }
  return target;
}

function copyImmutable(sql: DatabaseSync, path: string): void {
  const address = pathToFileURL(path);
  address.searchParams.set("immutable", "1");
  try {
    copyContent(sql, address);
  } catch {
    // Unreadable content is lost in any case. An empty database lets the agent work and report it.
  }
}

function copyContent(sql: DatabaseSync, address: URL, { isLenient = false } = {}): void {
  sql.prepare("ATTACH ? AS disk").run(address.href);
  // Rows may be inserted before the rows that they reference.
  sql.exec("PRAGMA foreign_keys=OFF");
  try {
    const tables = sql.prepare("SELECT name FROM main.sqlite_schema WHERE type='table'").all();
    for (const { name } of tables) {
      const columns = sharedColumns(sql, String(name));
      const table = quoted(String(name));
      if (columns === "") continue;
      try {
        sql.exec(`INSERT OR IGNORE INTO main.${table} (${columns}) SELECT ${columns} FROM disk.${table}`);
      } catch (error) {
        // One table that does not fit must not block the others.
        if (!isLenient) throw error;
      }
    }
  } finally {
    sql.exec("PRAGMA foreign_keys=ON");
    sql.exec("DETACH disk");
  }
}

/** Returns the columns that a table has in both databases, as an SQL list. The file may have an older schema or lack the table. */
function sharedColumns(sql: DatabaseSync, table: string): string {
  const query =
    "SELECT name FROM pragma_table_info(?1, 'main') INTERSECT SELECT name FROM pragma_table_info(?1, 'disk')";
  const columns = sql.prepare(query).all(table);
  return columns.map(({ name }) => quoted(String(name))).join(", ");
}

function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

function wrap(path: string, error: unknown): HostError {
  return new HostError("database-failed", `cannot open ${path}: ${toError(error).message}`, { cause: error });
}
