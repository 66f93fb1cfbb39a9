import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { HostError } from "../../errors.ts";
import { sqliteCode } from "../files/database.ts";

/** A lock on a run directory; the kernel releases it when this process exits. */
export interface RunLock {
  release(): void;
}

const SQLITE_BUSY = 5;

/**
 * Locks a run directory for one program by `RUN/<program>.lock`, an empty file that is never removed, because others may be
 * waiting for it. Only under such a lock can a dead process's socket be replaced without a race. SQLite's lock is the one that
 * the runtime offers.
 * @throws {HostError} `socket-in-use` if another process holds it.
 */
export function lockRunDirectory(runDir: string, program: string): RunLock {
  const path = join(runDir, `${program}.lock`);
  try {
    return lockFile(path);
  } catch (error) {
    if (isLocked(error)) {
      throw new HostError("socket-in-use", `another process holds ${path}`, { cause: error, details: { path } });
    }
    // If the directory refuses files, it also refuses the socket, whose error is clearer. A path that is not a lock file locks
    // nobody out.
    return { release: () => undefined };
  }
}

/** Locks an empty file, creating it if necessary. @throws SQLite's error; `isLocked` reports whether another process holds the lock */
export function lockFile(path: string): RunLock {
  const sql = new DatabaseSync(path, { timeout: 0 });
  try {
    sql.exec("PRAGMA cache_size=-8; BEGIN EXCLUSIVE");
  } catch (error) {
    sql.close();
    throw error;
  }
  return { release: () => sql.close() };
}

/** Reports whether `lockFile` failed because another process holds the lock. */
export const isLocked = (error: unknown): boolean => sqliteCode(error) === SQLITE_BUSY;
