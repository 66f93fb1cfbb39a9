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
  /** One step per schema version, in order; how many were taken is kept in `user_version`. */
  readonly migrations: readonly Migration[];
  /** Hold the file for this process alone, so that a second program on the same state is refused. */
  readonly exclusive: boolean;
  /** What to do with a damaged file: begin anew beside it, or leave everything as it is and throw. */
  readonly onDamage?: "begin-anew" | "refuse";
  /** The same of a file that a newer version wrote and no program of this one can use; refused unless told. */
  readonly onNewer?: "begin-anew" | "refuse";
  /** Whether there must be something in it, so that an empty file is a damaged one. */
  readonly isExpected?: boolean;
}

/** An open database and what had to be done to open it. */
export interface Database {
  readonly sql: DatabaseSync;
  /** False when the disk refuses writes: the content was copied into memory and is lost at exit. */
  readonly isPersistent: boolean;
  /** Where a damaged predecessor was set aside, if there was one. */
  readonly damagedCopy: string | undefined;
  /** Where the file of a newer version was set aside; what fits this version's tables was carried over. */
  readonly newerCopy: string | undefined;
  /** Whether committed transactions are missing from the end, because its write-ahead log was damaged; a copy is at `<path>-wal.damaged`. */
  readonly isLogDamaged: boolean;
  /** Whether there was nothing in it. */
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
/** Far above what is reached between two checkpoints. */
const MAX_LOG_BYTES = 64 * 1024 * 1024;

/**
 * Opens a SQLite file durably (WAL, `synchronous=FULL`) and brings its schema up to date. A newer schema that says this version
 * may use it is used as it is. A damaged file is set aside as `<path>.damaged` and begun anew; a disk that cannot be written yields a copy in memory. One that is only full is no hindrance,
 * since a file whose schema is current is opened without a write.
 * @throws {HostError} `state-locked` when another process holds it, `state-too-new` when a newer version wrote it and `onNewer` says so,
 *   `state-damaged` when it is damaged and `onDamage` says so.
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
        throw new HostError("state-locked", `${path} is held by another process`, { cause: error, details: { path } });
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

function stateDamaged(path: string, cause?: unknown): HostError {
  return new HostError(
    "state-damaged",
    `${path} is damaged; nothing was changed: restore it from a backup, or move it away to begin anew`,
    { cause, details: { path } },
  );
}

/** The write-ahead log that a crash left, if it is damaged. SQLite writes over it once it is open. */
function readDamagedLog(path: string): Buffer | undefined {
  try {
    const log = readRegularFileSync(path, MAX_LOG_BYTES);
    return isLogDamaged(log) ? log : undefined;
  } catch {
    return undefined; // What cannot be read at all shows when the database is opened.
  }
}

function keepCopy(path: string, content: Buffer): void {
  try {
    writeFileSync(path, content, { mode: 0o600 });
  } catch {
    // A disk that takes no more still has a database that works.
  }
}

/** The primary result code of a failed SQLite call (https://sqlite.org/rescode.html), or undefined. */
export function sqliteCode(error: unknown): number | undefined {
  if (errnoOf(error) !== "ERR_SQLITE_ERROR" || !(error instanceof Error) || !("errcode" in error)) return undefined;
  return typeof error.errcode === "number" ? error.errcode & 0xff : undefined;
}

const REFUSED: ReadonlySet<number | undefined> = new Set([SQLITE_FULL, SQLITE_READONLY, SQLITE_IOERR]);

/** What SQLite throws when the disk takes no write, as an error that says so: `storage-unavailable`. Undefined for anything else. */
export function storageError(error: unknown): HostError | undefined {
  if (!REFUSED.has(sqliteCode(error))) return undefined;
  const { message } = toError(error);
  return new HostError("storage-unavailable", `the database cannot be written: ${message}`, { cause: error });
}

/** Whether SQLite failed for want of disk space. */
export function isDiskFull(error: unknown): boolean {
  return sqliteCode(error) === SQLITE_FULL;
}

/** Writes the write-ahead log into the database, so that its space is used again. Whether it could be is not of interest. */
export function recycleLog(sql: DatabaseSync): void {
  try {
    sql.exec("PRAGMA wal_checkpoint(RESTART)");
  } catch {
    // A disk without room for it leaves the log as it is.
  }
}

/** Runs `work` in one transaction: all of it or, when it throws, nothing. */
export function transaction<T>(sql: DatabaseSync, work: () => T): T {
  sql.exec("BEGIN IMMEDIATE");
  try {
    const result = work();
    sql.exec("COMMIT");
    return result;
  } catch (error) {
    // After some failures (a full disk) SQLite has rolled back by itself, and a second time is an error.
    if (sql.isTransaction) sql.exec("ROLLBACK");
    throw error;
  }
}

/** Runs `work` in one transaction, the one that is open if there is one. */
export function atomic<T>(sql: DatabaseSync, work: () => T): T {
  return sql.isTransaction ? work() : transaction(sql, work);
}

/**
 * Runs `work`, whose commits do not wait for the disk: a power cut may lose them, but neither a crash of the program nor what was
 * committed before (`synchronous=NORMAL` beside a write-ahead log). For what is written again and again; not within a transaction.
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
  // SQLite would find out too, and remove the write-ahead log, which may be all that is left.
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

/** Whether a file begins as a SQLite database, or is not there, or empty where it may be, or is a directory. */
function hasHeader(path: string, isExpected: boolean): boolean {
  const found = statSync(path, { throwIfNoEntry: false });
  // SQLite says of a directory that it cannot be opened; of a pipe or a device it would be the other end.
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

/** Brings the schema up to date and gives the version it had. */
function migrate(sql: DatabaseSync, path: string, migrations: readonly Migration[]): number {
  // Taking the write lock first makes a second process fail here and not in the middle of its work.
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

/** Puts the file of a newer version away and begins a new one with whatever of its content fits. */
function succeedNewer(path: string, options: DatabaseOptions): Database {
  const newerCopy = `${path}.newer`;
  try {
    setAside(path, newerCopy);
    const opened = openFile(path, options, (sql) => copyContent(sql, pathToFileURL(newerCopy), { isLenient: true }));
    return { ...opened, isPersistent: true, ...NOTHING_AMISS, newerCopy };
  } catch {
    // A disk that takes no writes keeps it where it is; in memory it is read the same way.
    return { ...openInMemory(path, options), newerCopy: path };
  }
}

/** Puts a damaged file away, with its write-ahead log under the name that SQLite looks for, and begins a new one. */
function beginAnew(path: string, options: DatabaseOptions): Database {
  const damagedCopy = `${path}.damaged`;
  try {
    setAside(path, damagedCopy);
    return { ...openFile(path, options), isPersistent: true, ...NOTHING_AMISS, damagedCopy };
  } catch {
    // A disk that takes no writes keeps the damaged file where it is.
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
  // A copy is read with its write-ahead log, which a file opened as immutable is read without.
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
    // What cannot be read is gone either way; an empty memory still lets the agent work and say so.
  }
}

function copyContent(sql: DatabaseSync, address: URL, { isLenient = false } = {}): void {
  sql.prepare("ATTACH ? AS disk").run(address.href);
  // A reference may come before what it refers to.
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
        // One table that does not fit must not keep the others back.
        if (!isLenient) throw error;
      }
    }
  } finally {
    sql.exec("PRAGMA foreign_keys=ON");
    sql.exec("DETACH disk");
  }
}

/** The columns that a table has in both, as a list for SQL; the file may be of an older schema, or not have the table. */
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
