import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { HostError } from "../../errors.ts";
import { sqliteCode } from "../files/database.ts";

/** A run directory held by this process; the kernel lets go of it when the process ends, however that happens. */
export interface RunLock {
  release(): void;
}

const SQLITE_BUSY = 5;

/**
 * Takes a run directory for one program by a lock on `RUN/<program>.lock`, an empty file that stays: whoever removed it could not
 * know who waits for it. A dead process's socket can be taken over without a race only under such a lock, and SQLite's is the one
 * that the runtime offers.
 * @throws {HostError} `socket-in-use` when another process has it.
 */
export function lockRunDirectory(runDir: string, program: string): RunLock {
  const path = join(runDir, `${program}.lock`);
  try {
    return lockFile(path);
  } catch (error) {
    if (isLocked(error)) {
      throw new HostError("socket-in-use", `another process has ${path}`, { cause: error, details: { path } });
    }
    // A directory that takes no file takes no socket either, and says so better; what is no such file locks nobody out.
    return { release: () => undefined };
  }
}

/** Takes a lock on an empty file, which is made where it is not there. @throws what SQLite throws; `isLocked` tells whether somebody has it */
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

/** Whether it was another process that kept `lockFile` from its lock. */
export const isLocked = (error: unknown): boolean => sqliteCode(error) === SQLITE_BUSY;
