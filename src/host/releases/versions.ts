import { basename, join } from "node:path";
import { lstat } from "node:fs/promises";
import { z } from "zod";
import { HostError, toError } from "../../errors.ts";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import { PackageVersion, UPGRADE_PATHS, UpgradeStanding } from "../../protocol/documents/release.ts";
import { JsonObject, Text64, Text1024, UnixSeconds } from "../../protocol/values/values.ts";
import type { Directories } from "../files/directories.ts";
import type { Files } from "../files/files.ts";
import { isLocked, lockFile } from "../process/run-lock.ts";

/** `VERSION.trial`: the version is on trial. */
export const TrialMark = z.object({
  /** The version to roll back to. */
  from: PackageVersion,
  since: UnixSeconds,
  bootId: Text64,
  /** The baseline to judge the trial by. */
  before: JsonObject,
});
export type TrialMark = z.infer<typeof TrialMark>;

/** `VERSION.failed`: the reason for giving the version up. The launcher may write plain text instead, which becomes the message. */
export const FailedMark = z.object({
  code: Text64,
  message: Text1024,
  at: UnixSeconds.optional(),
});
export type FailedMark = z.infer<typeof FailedMark>;

/** A version on this machine, with its marks. */
export interface InstalledVersion {
  readonly version: string;
  readonly path: string;
  /** Whether it came with the package. */
  readonly isBase: boolean;
  /** Whether runtime, bundle and `version` exist and match its name. */
  readonly isWhole: boolean;
  /** The trial mark; `damaged` if it cannot be read, which still counts as a trial. */
  readonly trial: TrialMark | "damaged" | undefined;
  /** End of the probation, in Unix seconds; 0 if the mark cannot be read. */
  readonly probationUntil: number | undefined;
  /** Whether the launcher skips it temporarily. */
  readonly isAside: boolean;
  /** Number of starts that count against it. */
  readonly starts: number;
  readonly failed: FailedMark | undefined;
}

/** The lock of an upgrade; the kernel releases it when the process exits. */
export interface VersionsLock {
  release(): void;
}

/**
 * The directory of installed versions (decision 0029). Every change is durable when it resolves.
 * @throws {HostError} `disk-full`, `read-only`, `access-denied` or `file-failed`
 */
export interface Versions {
  readonly path: string;
  /** Returns `part/`, the directory for fetched and unpacked files that are not yet placed; creates it if necessary. */
  staging(): Promise<string>;
  /**
   * Marks a version unpacked at `part/NAME` as complete and tested, and renames it to the path that `place` expects. `sha256` is
   * the hash of its archive, which `staged` compares. Removes everything else from `part/`.
   */
  stage(name: string, version: string, sha256: string): Promise<void>;
  /** Returns the directory of a version staged from this archive; undefined if there is none. */
  staged(version: string, sha256: string): Promise<string | undefined>;
  /** Removes the entries of `part/` except the given names. */
  sweep(keep: readonly string[]): Promise<void>;
  /** Returns every version, newest first; skips names that are not versions. */
  list(): Promise<readonly InstalledVersion[]>;
  /** @throws {HostError} `busy` if another process upgrades, `lock-failed` if locking fails. */
  lock(): VersionsLock;
  /** Returns undefined if there is none or it cannot be read. */
  standing(): Promise<UpgradeStanding | undefined>;
  setStanding(standing: UpgradeStanding): Promise<void>;
  /**
   * Switches to a version: writes the trial mark, removes marks of an earlier trial of the version, and renames the staged
   * directory into place. After an interruption, a second call completes it.
   * @throws {HostError} `not-staged` if the version was not staged, `version-exists` if it is installed, intact and not given up
   */
  place(version: string, trial: TrialMark): Promise<void>;
  /** Marks a version as given up. */
  fail(version: string, why: FailedMark): Promise<void>;
  /** Removes the failure mark, at an operator's request. */
  forgive(version: string): Promise<void>;
  /** Makes the launcher skip a version on trial temporarily. */
  setAside(version: string): Promise<void>;
  restore(version: string): Promise<void>;
  /** Ends the trial as a success: writes `.probation`, then removes `.trial`. Starts are still counted. */
  prove(version: string, until: number): Promise<void>;
  /** Removes all marks except `.failed`, at the end of the probation or after a new placement. */
  unmark(version: string): Promise<void>;
  /**
   * Removes all versions except those named, marks of removed versions (except `.failed`), and leftovers of interrupted writes.
   * Returns the removed versions.
   */
  clean(keep: readonly string[]): Promise<readonly string[]>;
}

export interface VersionsOptions {
  /** Parent directory of `base/` and the keys. */
  readonly packagePath?: string;
  readonly path?: string;
  readonly files: Files;
  readonly directories: Directories;
  readonly signal: AbortSignal;
}

const MARKS = ["trial", "probation", "starts", "failed", "aside"] as const;
type Mark = (typeof MARKS)[number];
/** Marks of a trial, void after it. `.trial` is removed last, because it identifies an interrupted upgrade. */
const TRIALS: readonly Mark[] = ["starts", "probation", "aside", "trial"];

const LIMITS = { maxBytes: 256 * 1024, maxDepth: 16 };
const MAX_ENTRIES = 10_000;
/** Readable by every program, because the launcher runs as any user. */
const MARK_MODE = 0o644;

/** `VERSION.starts` holds a slot for each counted start, allocated in advance so that it can be overwritten on a full disk. */
const [PLACES, PLACE_BYTES] = [3, 64];
const NO_STARTS = "\0".repeat(PLACES * PLACE_BYTES);

/** Returns the versions on this machine. */
export function hostVersions(options: VersionsOptions): Versions {
  const { packagePath = UPGRADE_PATHS.package, path = UPGRADE_PATHS.versions, files, directories, signal } = options;
  const staging = join(path, "part");
  const at = (version: string): string => join(path, nameOf(version));
  const markAt = (version: string, mark: Mark): string => `${at(version)}.${mark}`;
  const stagedAt = (version: string): string => join(staging, `${nameOf(version)}.ready`);
  const sourceAt = (version: string): string => join(staging, `${nameOf(version)}.sha256`);

  const open = async (): Promise<void> => files.makeDirectory(path, 0o755);
  const write = async (version: string, mark: Mark, text: string): Promise<void> => {
    await open();
    await files.writeAtomic(markAt(version, mark), text, MARK_MODE);
  };
  const drop = async (version: string, marks: readonly Mark[]): Promise<void> => {
    for (const mark of marks) await files.remove(markAt(version, mark));
  };
  const remove = async (victim: string): Promise<void> => {
    while (!(await directories.removeTree(victim, MAX_ENTRIES, signal)));
  };
  const sweep = async (keep: readonly string[]): Promise<void> => {
    for (const name of await files.list(staging)) if (!keep.includes(name)) await remove(join(staging, name));
  };
  /** Hides the version from the launcher with one rename, then removes it. */
  const discard = async (version: string): Promise<void> => {
    const grave = join(staging, `${nameOf(version)}.old`);
    await files.makeDirectory(staging, 0o700);
    await remove(grave);
    await directories.move(at(version), grave);
    await remove(grave);
  };
  const inspect = async (version: string, names: ReadonlySet<string>): Promise<InstalledVersion> => {
    const markText = (mark: Mark): Promise<string | undefined> =>
      names.has(`${version}.${mark}`) ? readMark(files, markAt(version, mark)) : Promise.resolve(undefined);
    const [trial, probation, starts, failed, aside] = await Promise.all(MARKS.map(markText));
    return {
      version,
      path: at(version),
      isBase: false,
      isWhole: await isWhole(files, at(version), version),
      trial: trial === undefined ? undefined : (parsed(TrialMark, trial) ?? "damaged"),
      probationUntil: probation === undefined ? undefined : Number(/^until=(\d{1,12})$/m.exec(probation)?.[1] ?? 0),
      isAside: aside !== undefined,
      starts: starts === undefined ? 0 : startsIn(starts),
      failed: failed === undefined ? undefined : failedMark(failed),
    };
  };
  const list = async (): Promise<readonly InstalledVersion[]> => {
    const names = new Set(await files.list(path));
    const versions = new Set([...names].map((name) => name.replace(MARK_SUFFIX, "")).filter(isVersion));
    const found = await Promise.all([...versions].map((version) => inspect(version, names)));
    // While the package is being replaced, its previous version is in `base.before`; the launcher does the same.
    const before = await inspectBase(files, join(packagePath, "base.before"));
    const base = before?.isWhole === true ? before : await inspectBase(files, join(packagePath, "base"));
    // Marks of the package's own version may exist too; they count for the version in the directory.
    return [...(base === undefined ? [] : [base]), ...found].sort(newestFirst);
  };

  return {
    path,
    async staging() {
      await open();
      await files.makeDirectory(staging, 0o700);
      return staging;
    },
    async stage(name, version, sha256) {
      await remove(stagedAt(version));
      await files.makeDirectory(staging, 0o700);
      // Written before the rename; an interruption in between leaves an unused file.
      await files.writeAtomic(sourceAt(version), sha256, 0o600);
      if (!(await directories.move(join(staging, name), stagedAt(version)))) {
        throw new HostError("not-staged", `${join(staging, name)} does not exist`);
      }
      // A staged version may wait for months, without its archive.
      await sweep([stagedAt(version), sourceAt(version)].map((path) => basename(path)));
    },
    async staged(version, sha256) {
      const isThere = await isWhole(files, stagedAt(version), version);
      return isThere && (await readMark(files, sourceAt(version))) === sha256 ? stagedAt(version) : undefined;
    },
    sweep,
    list,
    lock() {
      try {
        return lockFile(join(path, "lock"));
      } catch (error) {
        if (isLocked(error)) throw new HostError("busy", "another upgrade is in progress", { cause: error });
        throw new HostError("lock-failed", `cannot lock ${join(path, "lock")}: ${toError(error).message}`, {
          cause: error,
        });
      }
    },
    async standing() {
      const text = await readMark(files, join(path, "upgrade.json"));
      return text === undefined ? undefined : parsed(UpgradeStanding, text);
    },
    async setStanding(standing) {
      await open();
      await files.writeAtomic(join(path, "upgrade.json"), `${JSON.stringify(standing)}\n`, MARK_MODE);
    },
    async place(version, trial) {
      const isStaged = (await directories.kind(stagedAt(version))) === "directory";
      const placed = (await list()).find((found) => found.version === version && !found.isBase);
      const isThere = (await directories.kind(at(version))) !== undefined;
      if (!isStaged) {
        // A version placed before an interruption already has its mark, which is written first.
        if (placed?.isWhole === true && placed.trial !== undefined && placed.failed === undefined) return;
        throw new HostError("not-staged", `version ${version} has not been fetched`);
      }
      if (isThere && placed?.isWhole === true && placed.failed === undefined) {
        throw new HostError("version-exists", `version ${version} is already installed`);
      }
      if (isThere) await discard(version);
      await drop(version, ["probation", "aside"]);
      await write(version, "starts", NO_STARTS);
      await write(version, "trial", `${JSON.stringify(trial)}\n`);
      // The failure mark goes after the trial mark is written; otherwise the launcher could pick a failed version as proven.
      await drop(version, ["failed"]);
      await directories.move(stagedAt(version), at(version));
    },
    async fail(version, why) {
      try {
        await write(version, "failed", `${JSON.stringify(FailedMark.parse(why))}\n`);
      } catch (error) {
        const isFull = error instanceof HostError && error.code === "disk-full";
        if (!isFull) throw error;
        // The launcher does the same: the mark counts by existing, and a rename needs no space. `trial` is used last, because the
        // upgrade program resumes by it at the next boot.
        for (const mark of ["starts", "trial"] as const) {
          if ((await directories.kind(markAt(version, mark))) !== "file") continue;
          return files.move(markAt(version, mark), markAt(version, "failed"));
        }
        throw error;
      }
    },
    forgive: (version) => drop(version, ["failed"]),
    setAside: (version) => write(version, "aside", ""),
    restore: (version) => drop(version, ["aside"]),
    async prove(version, until) {
      // Starts so far still count: a series of crashes may start on trial and end after it.
      await write(version, "probation", `until=${Math.floor(until)}\n`);
      await drop(version, ["trial"]);
    },
    unmark: (version) => drop(version, TRIALS),
    async clean(keep) {
      const doomed = (await list()).filter(({ version, isBase }) => !isBase && !keep.includes(version));
      const removed: string[] = [];
      for (const { version } of doomed) {
        const isThere = (await directories.kind(at(version))) !== undefined;
        if (isThere) await discard(version);
        await drop(version, TRIALS);
        if (isThere) removed.push(version);
      }
      await files.sweep(path);
      return removed;
    },
  };
}

const MARK_SUFFIX = new RegExp(`\\.(?:${MARKS.join("|")})$`);

const isVersion = (name: string): boolean => PackageVersion.safeParse(name).success;

/** Versions become file names, so other strings are refused. */
function nameOf(version: string): string {
  if (isVersion(version)) return version;
  throw new HostError("bad-version", `${JSON.stringify(version)} is not a version`);
}

/** Compares versions as text, as operators do. */
function newestFirst(a: InstalledVersion, b: InstalledVersion): number {
  if (a.version !== b.version) return a.version < b.version ? 1 : -1;
  return Number(a.isBase) - Number(b.isBase);
}

/** Returns the version that came with the package; it has no marks. */
async function inspectBase(files: Files, path: string): Promise<InstalledVersion | undefined> {
  const version = (await readMark(files, join(path, "version")))?.trim();
  if (version === undefined || !isVersion(version)) return undefined;
  const unmarked = { trial: undefined, probationUntil: undefined, isAside: false, starts: 0, failed: undefined };
  return { version, path, isBase: true, isWhole: await isWhole(files, path, version), ...unmarked };
}

async function isWhole(files: Files, path: string, version: string): Promise<boolean> {
  if ((await readMark(files, join(path, "version")))?.trim() !== version) return false;
  const sizes = await Promise.all(["node", "holdfast.mjs"].map((name) => sizeOf(join(path, name))));
  return sizes.every((size) => size > 0);
}

async function sizeOf(path: string): Promise<number> {
  try {
    const stat = await lstat(path);
    return stat.isFile() ? stat.size : 0;
  } catch {
    return 0;
  }
}

/** Returns the text of a mark; empty if it exists but cannot be read. */
async function readMark(files: Files, path: string): Promise<string | undefined> {
  try {
    return await files.read(path);
  } catch {
    return "";
  }
}

function parsed<T>(schema: z.ZodType<T>, text: string): T | undefined {
  try {
    return schema.safeParse(parseStrictJson(text, LIMITS)).data;
  } catch {
    return undefined;
  }
}

function failedMark(text: string): FailedMark {
  // A renamed mark means that the disk had no room for the reason.
  if (isOfStarts(text) || parsed(TrialMark, text) !== undefined)
    return { code: "given-up", message: "it was given up while the disk was full" };
  return parsed(FailedMark, text) ?? { code: "given-up", message: text.trim().slice(0, 1024) };
}

/** Returns the number of starts that count. A start that ran for a while before the machine stopped does not count. */
function startsIn(text: string): number {
  const places = Array.from({ length: PLACES }, (_, at) => text.slice(at * PLACE_BYTES, (at + 1) * PLACE_BYTES));
  return places.filter((place) => !/^[\0\s]*$|\slived[\0\s]*$/.test(place)).length;
}

const isOfStarts = (text: string): boolean => text.length === NO_STARTS.length;
