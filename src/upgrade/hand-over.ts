import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { InputError } from "../errors.ts";
import type { Directories } from "../host/files/directories.ts";
import { fetchFile } from "../host/releases/fetch-file.ts";
import type { Files } from "../host/files/files.ts";
import { besideOf, readWhole } from "../host/releases/release-source.ts";
import { FETCH_LIMITS } from "../host/releases/retries.ts";
import { isLocked, lockFile } from "../host/process/run-lock.ts";
import { MANIFEST_NAME } from "../protocol/documents/release.ts";
import { checkRelease, judgeSpace } from "./fetch.ts";
import { MAX_MANIFEST_BYTES } from "./manifest.ts";
import type { openFetching } from "./open-fetching.ts";

/** A local release, copied to where the upgrade program can read it. */
export interface HandedOver {
  /** Path of its manifest. */
  readonly from: string;
  /** Unlocks the copy after it was requested; it is then removed with the request. */
  release(): void;
  /** Removes the copy, which nobody requested. */
  discard(): Promise<void>;
}

/** Directory below the versions with one locked directory for each copied release. */
const PLACE = "given";
const LOCK = "lock";
const MAX_ENTRIES = 100;

/**
 * Copies a manifest and this machine's package to where the upgrade program can read them, because that program can only read
 * files of root. Checks the release and the disk space first.
 * @throws errors of `checkRelease` and `fetchFile`; {InputError} the code of the refusal; {HostError} `disk-too-small`
 */
export async function handOver(
  { from, isForced }: { readonly from: string; readonly isForced: boolean },
  {
    versionsPath,
    directories,
    ...deps
  }: Omit<ReturnType<typeof openFetching>, "onStep"> & {
    readonly versionsPath: string;
    readonly directories: Directories;
  },
  signal: AbortSignal,
): Promise<HandedOver> {
  const once = { ...deps, limits: { ...FETCH_LIMITS, attempts: 1 } };
  const { verdict } = await checkRelease({ from, isForced, by: "operator" }, once, signal);
  if (verdict.is === "refused") throw new InputError(verdict.code, verdict.message);
  const { name, size, sha256, unpackedSize } = verdict.file;
  // The copy takes the package's size in addition to a remote fetch.
  await judgeSpace(versionsPath, { ...verdict.file, unpackedSize: unpackedSize + size }, 0, deps.files);
  const place = join(versionsPath, PLACE, `${process.pid}-${randomBytes(6).toString("hex")}`);
  await deps.files.makeDirectory(place, 0o700);
  const lock = lockFile(join(place, LOCK));
  const discard = async (): Promise<void> => {
    lock.release();
    await removeAll(directories, place);
  };
  try {
    await fetchFile({ address: besideOf(from, name), path: join(place, name), size, sha256 }, once, signal);
    const manifest = Buffer.from(await readWhole(deps, from, MAX_MANIFEST_BYTES, signal));
    await deps.files.writeAtomic(join(place, MANIFEST_NAME), manifest.toString("latin1"), 0o600);
  } catch (error) {
    await discard();
    throw error;
  }
  return { from: join(place, MANIFEST_NAME), release: () => lock.release(), discard };
}

/** Removes copied releases without a request, after the copying process was killed or the upgrade ended. */
export async function sweepHandedOver(
  versionsPath: string,
  {
    files,
    directories,
    isAskedFor,
  }: {
    readonly files: Files;
    readonly directories: Directories;
    readonly isAskedFor: (path: string) => Promise<boolean>;
  },
): Promise<void> {
  const given = join(versionsPath, PLACE);
  for (const name of await files.list(given)) {
    const place = join(given, name);
    try {
      lockFile(join(place, LOCK)).release();
    } catch (error) {
      if (isLocked(error)) continue;
    }
    // Checked after locking: a request is written before the lock is released.
    if (!(await isAskedFor(place))) await removeAll(directories, place);
  }
}

async function removeAll(directories: Directories, path: string): Promise<void> {
  while (!(await directories.removeTree(path, MAX_ENTRIES, new AbortController().signal)));
}
