import { existsSync, lstatSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { HostError, InputError, toError } from "../errors.ts";
import { sqliteCode } from "./database.ts";

const SQLITE_BUSY = 5;
const DATABASE = "state.db";
// Identity goes last: cut off half-way, the node still knows its name and the wipe can be repeated.
const WIPED = [
  "desired",
  "reported",
  DATABASE,
  `${DATABASE}-wal`,
  `${DATABASE}-shm`,
  `${DATABASE}.damaged`,
  `${DATABASE}.damaged-wal`,
  `${DATABASE}-wal.damaged`,
  "identity",
];

/** What a wipe would remove from a state directory; the data store is not part of it. */
export function wipeableState(stateDir: string): readonly string[] {
  return WIPED.filter((name) => lstatSync(join(stateDir, name), { throwIfNoEntry: false }) !== undefined);
}

/** Removes identity, desired state and journal, and tells what was removed. */
export async function wipeState(stateDir: string): Promise<readonly string[]> {
  const names = wipeableState(stateDir);
  for (const name of names) {
    try {
      await rm(join(stateDir, name), { recursive: true, force: true });
    } catch (error) {
      throw new HostError("file-failed", `cannot remove ${join(stateDir, name)}: ${toError(error).message}`, {
        cause: error,
      });
    }
  }
  return names;
}

/**
 * Refuses whoever is neither root nor the owner of the state directory.
 * @throws {InputError} `access-denied`; `not-found` when there is no such directory.
 */
export function requireOwner(stateDir: string): void {
  const found = lstatSync(stateDir, { throwIfNoEntry: false });
  if (found === undefined) throw new InputError("not-found", `there is no state directory ${stateDir}`);
  const user = process.geteuid?.() ?? found.uid;
  if (user !== 0 && user !== found.uid) {
    throw new InputError("access-denied", `only root or its owner may change ${stateDir}: run the command with sudo`);
  }
}

/**
 * Refuses while an agent works on the state directory, wherever its run directory is.
 * @throws {HostError} `state-locked`.
 */
export function requireUnused(stateDir: string): void {
  const path = join(stateDir, DATABASE);
  if (!existsSync(path)) return;
  let sql: DatabaseSync | undefined;
  try {
    sql = new DatabaseSync(path, { timeout: 0 });
    sql.exec("BEGIN IMMEDIATE; ROLLBACK");
  } catch (error) {
    if (sqliteCode(error) === SQLITE_BUSY) {
      throw new HostError("state-locked", `an agent is using ${stateDir}: stop it first`, {
        cause: error,
        details: { path },
      });
    }
    // A file too damaged to be locked is one more reason to wipe.
  } finally {
    sql?.close();
  }
}
