import { existsSync, lstatSync } from "node:fs";
import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { HostError, InputError, toError } from "../../errors.ts";
import { sqliteCode } from "./database.ts";
import { hostDirectories } from "./directories.ts";
import type { Files } from "./files.ts";

const SQLITE_BUSY = 5;
const DATABASE = "state.db";
// The identity goes last: an interrupted wipe leaves the node's name, and can be repeated.
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

/** The reset order in the state directory, removed last. */
export const RESET_FILE = "reset.json";
/** The data store, with the volumes of containers. */
const DATA_STORE = "data-store";
const NOT_OURS = new Set([RESET_FILE, "lost+found"]);
const ENTRIES_AT_ONCE = 20_000;

/** Returns the entries that a wipe would remove from a state directory; the data store is not among them. */
export function wipeableState(stateDir: string): readonly string[] {
  return WIPED.filter((name) => lstatSync(join(stateDir, name), { throwIfNoEntry: false }) !== undefined);
}

/** Removes identity, desired state, journal and files that the overlay serves; returns the removed names. */
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

/**
 * Removes everything in the state directory except the reset order: the data store with all volumes, the network records, and
 * last the entries that `wipeState` removes. Returns the removed names, and the parts of the data store that could not be
 * removed.
 */
export async function wipeEverything(
  stateDir: string,
  signal: AbortSignal,
): Promise<{ readonly removed: readonly string[]; readonly left: readonly string[] }> {
  const names = (await readdir(stateDir)).filter((name) => !NOT_OURS.has(name) && !WIPED.includes(name));
  const directories = hostDirectories();
  const left: string[] = [];
  const removed: string[] = [];
  for (const name of names) {
    const path = join(stateDir, name);
    try {
      while (!(await directories.removeTree(path, ENTRIES_AT_ONCE, signal))) signal.throwIfAborted();
      removed.push(name);
    } catch (error) {
      // A mounted disk or an undeletable file must not prevent removing the identity.
      if (name !== DATA_STORE || !(error instanceof HostError)) throw error;
      left.push(error.message);
    }
  }
  return { removed: [...removed, ...(await wipeState(stateDir))], left };
}

function notRemoved(path: string, error: unknown): HostError {
  return new HostError("file-failed", `cannot remove ${path}: ${toError(error).message}`, { cause: error });
}

/**
 * Refuses users other than root and the owner of the state directory.
 * @throws {InputError} `access-denied`; `not-found` if the directory does not exist.
 */
export function requireOwner(stateDir: string): void {
  const found = lstatSync(stateDir, { throwIfNoEntry: false });
  if (found === undefined) throw new InputError("not-found", `state directory ${stateDir} does not exist`);
  const user = process.geteuid?.() ?? found.uid;
  if (user !== 0 && user !== found.uid) {
    throw new InputError("access-denied", `only root or its owner may change ${stateDir}: run the command with sudo`);
  }
}

/**
 * Refuses a reset while a network change is pending, because a reset removes the files needed to revert it.
 * @throws {InputError} `busy`.
 */
export async function requireSettled(files: Files, stateDir: string): Promise<void> {
  if ((await files.read(join(stateDir, "desired/checkpoint.json"))) === undefined) return;
  throw new InputError(
    "busy",
    "a network change is pending: run 'holdfast network keep' or 'holdfast network revert' first, or without an agent 'holdfast guard restore'",
  );
}

/**
 * Refuses while an agent uses the state directory, regardless of its run directory.
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
    // A file too damaged to lock does not block a wipe.
  } finally {
    sql?.close();
  }
}
