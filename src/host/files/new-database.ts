import { randomBytes } from "node:crypto";
import { closeSync, existsSync, fsyncSync, linkSync, openSync, readdirSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { errnoOf } from "../../errors.ts";

/**
 * Creates a SQLite file atomically: fills it under another name, syncs it and links it to its path. Keeps a file that another
 * process created first. Creates nothing if the file system does not support this.
 * @throws SQLite's error if the disk fails.
 */
export function createWhole(path: string, fill: (sql: DatabaseSync) => void): void {
  const fresh = `${path}.${randomBytes(6).toString("hex")}.tmp`;
  try {
    const sql = new DatabaseSync(fresh);
    try {
      sql.exec("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL");
      fill(sql);
    } finally {
      sql.close();
    }
    sync(fresh);
    linkSync(fresh, path);
    sync(dirname(path));
  } catch (error) {
    // Another process may have removed the temporary file. Only errors of SQLite count; opening the file later reports others.
    if (!existsSync(path) && errnoOf(error) === "ERR_SQLITE_ERROR") throw error;
  } finally {
    removeAttempts(path);
  }
}

/** Removes temporary files of attempts at an existing file. A slower process that loses its attempt this way finds the file. */
export function removeAttempts(path: string): void {
  const begin = `${basename(path)}.`;
  try {
    for (const name of readdirSync(dirname(path))) {
      const isAttempt = name.startsWith(begin) && /^[0-9a-f]{12}\.tmp/.test(name.slice(begin.length));
      if (isAttempt) rmSync(join(dirname(path), name), { force: true });
    }
  } catch {
    // A leftover file does no harm.
  }
}

function sync(path: string): void {
  const file = openSync(path, "r");
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
