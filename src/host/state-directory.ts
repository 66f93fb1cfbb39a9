import { existsSync, lstatSync } from "node:fs";
import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { HostError, InputError, toError } from "../errors.ts";
import { sqliteCode } from "./database.ts";

const SQLITE_BUSY = 5;
const DATABASE = "state.db";
// Identity goes last: cut off half-way, the node still knows its name and the wipe can be repeated.
const WIPED = [
  "overlay",
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

/** Removes what an overlay would serve from without its agent, and tells what was removed. The directory may be another user's and stays. */
export async function wipeOverlayState(overlayDir: string): Promise<readonly string[]> {
  const names = await readdir(overlayDir).catch(() => []);
  for (const name of names) await removeAll(join(overlayDir, name));
  return names.map((name) => join(overlayDir, name));
}

/** Removes identity, desired state, journal and what the overlay serves, and tells what was removed. */
export async function wipeState(stateDir: string): Promise<readonly string[]> {
  const names = wipeableState(stateDir);
  for (const name of names) await removeAll(join(stateDir, name));
  return names;
}

async function removeAll(path: string): Promise<void> {
  try {
    await rm(path, { recursive: true, force: true });
  } catch (error) {
    throw new HostError("file-failed", `cannot remove ${path}: ${toError(error).message}`, { cause: error });
  }
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
