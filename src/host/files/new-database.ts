import { randomBytes } from "node:crypto";
import { closeSync, existsSync, fsyncSync, linkSync, openSync, readdirSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { errnoOf } from "../../errors.ts";

/**
 * Makes a SQLite file that is there whole or not at all, whenever the power is cut: filled under another name, synced, and then
 * named. When another process was faster, its file stays; where the file system cannot do it, nothing is made.
 * @throws what SQLite says of the disk.
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
    // A faster process swept ours away; of anything else that is no word of SQLite's, whoever opens the file next says what it is.
    if (!existsSync(path) && errnoOf(error) === "ERR_SQLITE_ERROR") throw error;
  } finally {
    removeAttempts(path);
  }
}

/** Removes what attempts at a file that is made by now have left; a slower one that loses its own to this finds the file. */
export function removeAttempts(path: string): void {
  const begin = `${basename(path)}.`;
  try {
    for (const name of readdirSync(dirname(path))) {
      const isAttempt = name.startsWith(begin) && /^[0-9a-f]{12}\.tmp/.test(name.slice(begin.length));
      if (isAttempt) rmSync(join(dirname(path), name), { force: true });
    }
  } catch {
    // What cannot be removed does no harm.
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
