import { existsSync, lstatSync } from "node:fs";
import { readdir, rm, unlink } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { errnoOf, HostError, InputError, toError } from "../errors.ts";
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
  `${DATABASE}.newer`,
  `${DATABASE}.newer-wal`,
  "identity",
];

/** What a wipe would remove from a state directory; the data store is not part of it. */
export function wipeableState(stateDir: string): readonly string[] {
  return WIPED.filter((name) => lstatSync(join(stateDir, name), { throwIfNoEntry: false }) !== undefined);
}

/**
 * Removes the files that an overlay would serve from without its agent, and tells which. The directory belongs to another user, who
 * could lead a recursive removal astray: directories in it stay.
 */
export async function wipeOverlayState(overlayDir: string): Promise<readonly string[]> {
  const entries = await readdir(overlayDir, { withFileTypes: true }).catch(() => []);
  const paths = entries.filter((entry) => !entry.isDirectory()).map(({ name }) => join(overlayDir, name));
  for (const path of paths) {
    await unlink(path).catch((error: unknown) => {
      if (errnoOf(error) !== "ENOENT") throw notRemoved(path, error);
    });
  }
  return paths;
}

/** Removes identity, desired state, journal and what the overlay serves, and tells what was removed. */
export async function wipeState(stateDir: string): Promise<readonly string[]> {
  const names = wipeableState(stateDir);
  for (const name of names) {
    const path = join(stateDir, name);
    await rm(path, { recursive: true, force: true }).catch((error: unknown) => {
      throw notRemoved(path, error);
    });
  }
  return names;
}

function notRemoved(path: string, error: unknown): HostError {
  return new HostError("file-failed", `cannot remove ${path}: ${toError(error).message}`, { cause: error });
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
