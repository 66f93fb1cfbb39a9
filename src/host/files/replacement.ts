import { randomBytes } from "node:crypto";
import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync } from "node:fs";
import { lchown, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { z } from "zod";
import { HostError, toError } from "../../errors.ts";
import { readDamagedLog, sqliteCode, stateDamaged } from "./database.ts";
import { hostFiles, syncDirectory } from "./files.ts";

/**
 * Files of a directory that are replaced together: they are staged beside it, `commit` is one rename, and `completeReplacement` moves
 * them into place. A program that uses the directory calls that first, so that a crash leaves all of the old or all of the new.
 */
export interface Replacement {
  readonly id: string;
  /** Returns the path at which a file of this name is staged. */
  pathOf(name: string): string;
  /** Stages a text file with mode 0600; its name may have one folder. */
  write(name: string, text: string): Promise<void>;
  /** Lists the files as they are to be, and syncs them; until `commit` they change nothing. */
  seal(): Promise<void>;
  commit(): Promise<void>;
  discard(): Promise<void>;
}

/** Parts of a directory that a replacement replaces. */
export interface ReplacedParts {
  /** Folders whose files are replaced as a whole. */
  readonly folders: readonly string[];
  /** Single files; one that is not staged is removed. */
  readonly files: readonly string[];
  /** SQLite databases; one that is not staged stays. */
  readonly databases: readonly string[];
}

const SQLITE_BUSY = 5;
const SQLITE_CORRUPT = 11;
const SQLITE_NOTADB = 26;
const COMMITTED = "restored";
const STAGED = "restoring.";
const MANIFEST = "manifest.json";

const Manifest = z.object({
  folders: z.array(z.string()),
  files: z.array(z.string()),
  databases: z.array(z.string()),
  staged: z.array(z.string()),
});

const stagedDirectory = (dir: string, id: string): string => join(dir, STAGED + id);

/** Begins a replacement in an existing directory, and removes what earlier ones that were interrupted left. */
export async function beginReplacement(dir: string, parts: ReplacedParts): Promise<Replacement> {
  const files = hostFiles();
  for (const name of await files.list(dir)) if (name.startsWith(STAGED)) await removeTree(join(dir, name));
  const id = randomBytes(6).toString("hex");
  const directory = stagedDirectory(dir, id);
  await files.makeDirectory(directory, 0o700);
  const staged: string[] = [];
  return {
    id,
    pathOf: (name) => join(directory, name),
    async write(name, text) {
      await files.makeDirectory(dirname(join(directory, name)), 0o700);
      await files.writeAtomic(join(directory, name), text, 0o600);
      staged.push(name);
    },
    async seal() {
      await giveTo(dir, directory);
      const manifest = { ...parts, staged };
      await files.writeAtomic(join(directory, MANIFEST), JSON.stringify(manifest), 0o600);
    },
    commit: () => commitReplacement(dir, id),
    discard: () => removeTree(directory),
  };
}

/** Reports whether a sealed replacement of this identifier waits for its commit. */
export function isStaged(dir: string, id: string): boolean {
  return /^[0-9a-f]{12}$/.test(id) && existsSync(join(stagedDirectory(dir, id), MANIFEST));
}

/** Commits a sealed replacement: from here on `completeReplacement` moves it into place. */
export async function commitReplacement(dir: string, id: string): Promise<void> {
  await rename(stagedDirectory(dir, id), join(dir, COMMITTED));
  await syncDirectory(dir);
}

/**
 * Moves the files of a committed replacement into place, also after a crash in the midst of it. Nothing may use the directory meanwhile.
 * @throws {HostError} `state-locked` if another process does it, `file-failed` if the disk refuses it
 */
export async function completeReplacement(dir: string): Promise<void> {
  const files = hostFiles();
  const from = join(dir, COMMITTED);
  const text = await files.read(join(from, MANIFEST));
  if (text === undefined) return removeTree(from);
  const manifest = Manifest.parse(JSON.parse(text));
  for (const name of manifest.databases) installDatabase(join(from, name), join(dir, name));
  for (const folder of manifest.folders) {
    if (manifest.staged.some((name) => dirname(name) === folder)) await makeFolder(dir, folder);
    for (const name of await files.list(join(dir, folder))) {
      if (!manifest.staged.includes(`${folder}/${name}`)) await files.remove(join(dir, folder, name));
    }
  }
  for (const name of manifest.files) if (!manifest.staged.includes(name)) await files.remove(join(dir, name));
  for (const name of manifest.staged) {
    const staged = join(from, name);
    if (!existsSync(staged)) continue;
    await files.move(staged, join(dir, name)).catch((error: unknown) => {
      // Another process has moved it.
      if (existsSync(staged)) throw error;
    });
  }
  // Last: without it what is left is removed.
  await files.remove(join(from, MANIFEST));
  await removeTree(from);
}

async function makeFolder(dir: string, folder: string): Promise<void> {
  await hostFiles().makeDirectory(join(dir, folder), 0o700);
  const { uid, gid } = await stat(dir);
  await lchown(join(dir, folder), uid, gid);
}

/**
 * Gives staged files to the owner of the directory, who may not be the user that stages them: root. A folder follows its content, since
 * its owner can put links in it, which are not followed.
 */
async function giveTo(dir: string, staged: string): Promise<void> {
  const { uid, gid } = await stat(dir);
  const entries = await readdir(staged, { recursive: true });
  for (const entry of ["", ...entries.sort()].reverse()) await lchown(join(staged, entry), uid, gid);
}

async function removeTree(path: string): Promise<void> {
  try {
    await rm(path, { recursive: true, force: true });
  } catch (error) {
    throw new HostError("file-failed", `cannot remove ${path}: ${toError(error).message}`, { cause: error });
  }
}

/**
 * Moves a SQLite file into place, locked, so that no other process opens it meanwhile. A write-ahead log that the former one left is
 * removed first: SQLite would apply it to the new one.
 */
function installDatabase(staged: string, path: string): void {
  if (!existsSync(staged)) return;
  const held = lockDatabase(staged);
  try {
    for (const suffix of ["-wal", "-shm", "-journal"]) rmSync(path + suffix, { force: true });
    sync(dirname(path));
    renameSync(staged, path);
    sync(dirname(path));
  } finally {
    held.close();
  }
}

/** Locks a SQLite file against other processes. */
export interface HeldDatabase {
  close(): void;
}

/**
 * Locks an existing SQLite file, and brings its write-ahead log into it, so that closing it leaves nothing beside it.
 * @throws {HostError} `state-locked` if another process uses it, `state-damaged` if it is damaged
 */
export function lockDatabase(path: string): HeldDatabase {
  // Opening the database would overwrite the log.
  if (readDamagedLog(`${path}-wal`) !== undefined) throw stateDamaged(`${path}-wal`);
  const address = pathToFileURL(path);
  address.searchParams.set("mode", "rw");
  const sql = new DatabaseSync(address, { timeout: 0 });
  try {
    sql.exec("PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=DELETE; BEGIN EXCLUSIVE");
  } catch (error) {
    sql.close();
    const code = sqliteCode(error);
    if (code === SQLITE_CORRUPT || code === SQLITE_NOTADB) throw stateDamaged(path, error);
    if (code !== SQLITE_BUSY) throw error;
    throw new HostError("state-locked", `${path} is held by another process; end that process first`, {
      cause: error,
      details: { path },
    });
  }
  return { close: () => sql.close() };
}

function sync(path: string): void {
  const file = openSync(path, "r");
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
