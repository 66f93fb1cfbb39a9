import { join } from "node:path";
import { lstat } from "node:fs/promises";
import { z } from "zod";
import { HostError, toError } from "../../errors.ts";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import { PackageVersion, UPGRADE_PATHS, UpgradeStanding } from "../../protocol/documents/release.ts";
import { JsonObject, Text64, Text1024, UnixSeconds } from "../../protocol/values/values.ts";
import type { Directories } from "../files/directories.ts";
import type { Files } from "../files/files.ts";
import { isLocked, lockFile } from "../process/run-lock.ts";

/** `VERSION.trial`: the version has not proven itself yet. */
export const TrialMark = z.object({
  /** The version that is gone back to. */
  from: PackageVersion,
  since: UnixSeconds,
  bootId: Text64,
  /** What worked before, as whoever judges has to know it. */
  before: JsonObject,
});
export type TrialMark = z.infer<typeof TrialMark>;

/** `VERSION.failed`: why it was given up. The launcher may write plain text instead, which is then the message. */
export const FailedMark = z.object({
  code: Text64,
  message: Text1024,
  at: UnixSeconds.optional(),
});
export type FailedMark = z.infer<typeof FailedMark>;

/** A version that lies on this machine, with its marks. */
export interface InstalledVersion {
  readonly version: string;
  readonly path: string;
  /** It came with the package. */
  readonly isBase: boolean;
  /** Runtime, bundle and `version` are there and agree with its name. */
  readonly isWhole: boolean;
  /** `damaged` for a mark that is there and cannot be read: it counts all the same. */
  readonly trial: TrialMark | "damaged" | undefined;
  /** Unix seconds until which crashes count; 0 for a mark that cannot be read. */
  readonly probationUntil: number | undefined;
  /** The launcher passes it over for now. */
  readonly isAside: boolean;
  /** Starts that count against it. */
  readonly starts: number;
  readonly failed: FailedMark | undefined;
}

/** Held by whoever upgrades; the kernel lets go of it when the process ends. */
export interface VersionsLock {
  release(): void;
}

/**
 * The directory where versions lie side by side (decision 0029). Every change is durable when it resolves.
 * @throws {HostError} `disk-full`, `read-only`, `access-denied` or `file-failed`
 */
export interface Versions {
  readonly path: string;
  /** Where what is fetched and unpacked lies until it is placed: `part/`. Made when it is asked for. */
  staging(): Promise<string>;
  /**
   * Says that a version unpacked at `part/NAME` is whole and tested: renames it to where `place` finds it. `sha256` is that of the archive it
   * came from, by which `staged` knows it again.
   */
  stage(name: string, version: string, sha256: string): Promise<void>;
  /** The directory of a version that was staged from this archive; undefined if there is none. */
  staged(version: string, sha256: string): Promise<string | undefined>;
  /** Removes what is in `part/`, apart from the names given. */
  sweep(keep: readonly string[]): Promise<void>;
  /** Every version, newest first; names that are none are left out. */
  list(): Promise<readonly InstalledVersion[]>;
  /** @throws {HostError} `busy` when another process upgrades, `lock-failed` when nobody can be kept out. */
  lock(): VersionsLock;
  /** undefined when there is none, or none that can be read. */
  standing(): Promise<UpgradeStanding | undefined>;
  setStanding(standing: UpgradeStanding): Promise<void>;
  /**
   * The switch: writes the trial mark, forgets marks of an earlier try of the same version, and renames what `fetchRelease` has staged
   * into its place. Done again after a cut it does what is missing.
   * @throws {HostError} `not-staged` when nothing of it was staged, `version-exists` when a whole one that was not given up lies there
   */
  place(version: string, trial: TrialMark): Promise<void>;
  /** Gives a version up. */
  fail(version: string, why: FailedMark): Promise<void>;
  /** Takes a failure back: an operator insists. */
  forgive(version: string): Promise<void>;
  /** Has the launcher pass it over for a while, as if it were not there; it is on trial and stays so. */
  layAside(version: string): Promise<void>;
  bringBack(version: string): Promise<void>;
  /** It has proven itself: `.probation` is written, `.trial` removed, in this order. Starts go on being counted. */
  prove(version: string, until: number): Promise<void>;
  /** Its probation is over, or it has been placed anew: no mark is left but `.failed`. */
  unmark(version: string): Promise<void>;
  /**
   * Removes versions apart from those named, marks of versions that are gone (`.failed` stays: it is remembered), and what writes that were
   * cut short left. Resolves to the versions removed.
   */
  clean(keep: readonly string[]): Promise<readonly string[]>;
}

export interface VersionsOptions {
  /** `base/` and the keys lie below it. */
  readonly packagePath?: string;
  readonly path?: string;
  readonly files: Files;
  readonly directories: Directories;
  readonly signal: AbortSignal;
}

const MARKS = ["trial", "probation", "starts", "failed", "aside"] as const;
type Mark = (typeof MARKS)[number];
/** Those of a trial, which mean nothing once it is over; by `.trial`, the last to go, an upgrade that was cut short is known. */
const TRIALS: readonly Mark[] = ["starts", "probation", "aside", "trial"];

const LIMITS = { maxBytes: 256 * 1024, maxDepth: 16 };
const MAX_ENTRIES = 10_000;
/** Every program may read them: the launcher runs as any user. */
const MARK_MODE = 0o644;

/** `VERSION.starts` has a place for each start that may count, made before there is any: a full disk lets it be overwritten. */
const [PLACES, PLACE_BYTES] = [3, 64];
const NO_STARTS = "\0".repeat(PLACES * PLACE_BYTES);

/** The versions on this machine. */
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
  /** Out of the launcher's sight in one step, and only then piece by piece. */
  const discard = async (version: string): Promise<void> => {
    const grave = join(staging, `${nameOf(version)}.old`);
    await files.makeDirectory(staging, 0o700);
    await remove(grave);
    await directories.move(at(version), grave);
    await remove(grave);
  };
  const look = async (version: string, names: ReadonlySet<string>): Promise<InstalledVersion> => {
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
    const found = await Promise.all([...versions].map((version) => look(version, names)));
    // As the launcher does: while the package is being replaced, the version that it brought before lies beside it.
    const before = await lookAtBase(files, join(packagePath, "base.before"));
    const base = before?.isWhole === true ? before : await lookAtBase(files, join(packagePath, "base"));
    // Of the package's own version marks may be there too: they are the directory's, and so counted there.
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
      // Before the directory is: a cut in between leaves a mark of nothing.
      await files.writeAtomic(sourceAt(version), sha256, 0o600);
      if (await directories.move(join(staging, name), stagedAt(version))) return;
      throw new HostError("not-staged", `nothing was unpacked at ${join(staging, name)}`);
    },
    async staged(version, sha256) {
      const isThere = await isWhole(files, stagedAt(version), version);
      return isThere && (await readMark(files, sourceAt(version))) === sha256 ? stagedAt(version) : undefined;
    },
    async sweep(keep) {
      for (const name of await files.list(staging)) {
        if (!keep.includes(name)) await remove(join(staging, name));
      }
    },
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
        // What was placed before a cut needs no more than its mark, which came first.
        if (placed?.isWhole === true && placed.trial !== undefined && placed.failed === undefined) return;
        throw new HostError("not-staged", `version ${version} has not been fetched`);
      }
      if (isThere && placed?.isWhole === true && placed.failed === undefined) {
        throw new HostError("version-exists", `version ${version} is installed already`);
      }
      if (isThere) await discard(version);
      await drop(version, ["probation", "aside"]);
      await write(version, "starts", NO_STARTS);
      await write(version, "trial", `${JSON.stringify(trial)}\n`);
      // Not before the mark: what failed would else be picked as a proven one, were the directory still there.
      await drop(version, ["failed"]);
      await directories.move(stagedAt(version), at(version));
    },
    async fail(version, why) {
      try {
        await write(version, "failed", `${JSON.stringify(FailedMark.parse(why))}\n`);
      } catch (error) {
        const isFull = error instanceof HostError && error.code === "disk-full";
        if (!isFull) throw error;
        // As the launcher does: it counts by being there, and a rename takes no room. By the trial's mark, which is better kept, the
        // upgrade's program goes on at the next boot.
        for (const mark of ["starts", "trial"] as const) {
          if ((await directories.kind(markAt(version, mark))) !== "file") continue;
          return files.move(markAt(version, mark), markAt(version, "failed"));
        }
        throw error;
      }
    },
    forgive: (version) => drop(version, ["failed"]),
    layAside: (version) => write(version, "aside", ""),
    bringBack: (version) => drop(version, ["aside"]),
    async prove(version, until) {
      // Its starts so far stay: a series of crashes may begin on trial, and end after it.
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

/** Versions become names of files here, so nothing else may pass. */
function nameOf(version: string): string {
  if (isVersion(version)) return version;
  throw new HostError("bad-version", `${JSON.stringify(version)} is no version`);
}

/** As operators compare them: as text. */
function newestFirst(a: InstalledVersion, b: InstalledVersion): number {
  if (a.version !== b.version) return a.version < b.version ? 1 : -1;
  return Number(a.isBase) - Number(b.isBase);
}

/** The version that came with the package; it bears no marks. */
async function lookAtBase(files: Files, path: string): Promise<InstalledVersion | undefined> {
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

/** The text of a mark; one that is there and cannot be read is an empty one. */
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
  // Where there was no room for a reason, another mark bears the name.
  if (isOfStarts(text) || parsed(TrialMark, text) !== undefined)
    return { code: "given-up", message: "it was given up while the disk was full" };
  return parsed(FailedMark, text) ?? { code: "given-up", message: text.trim().slice(0, 1024) };
}

/** Starts that count: not those that had run for a while and were cut off with the machine. */
function startsIn(text: string): number {
  const places = Array.from({ length: PLACES }, (_, at) => text.slice(at * PLACE_BYTES, (at + 1) * PLACE_BYTES));
  return places.filter((place) => !/^[\0\s]*$|\slived[\0\s]*$/.test(place)).length;
}

const isOfStarts = (text: string): boolean => text.length === NO_STARTS.length;
