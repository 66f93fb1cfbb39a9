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

/** A release that lies where the upgrade's program can read it. */
export interface HandedOver {
  /** Its manifest. */
  readonly from: string;
  /** To be called once it has been asked for; from then on it is removed with what asks for it. */
  release(): void;
  /** Nobody asks for it. */
  discard(): Promise<void>;
}

/** Below the directory of versions: a directory for each release that is handed over, locked until it is asked for. */
const PLACE = "given";
const LOCK = "lock";
const MAX_ENTRIES = 100;

/**
 * Copies a manifest and this machine's package to where the upgrade's program can read them, whoever else may: it has no right but to what is
 * root's own. What would be refused is refused here, and there has to be room first.
 * @throws what `checkRelease` and `fetchFile` throw; {InputError} the code of the refusal; {HostError} `disk-too-small`
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
  // It lies here once more than when it is fetched from afar.
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

/** Removes releases that were handed over and that nobody asks for any more: whoever handed them over was killed, or their upgrade has ended. */
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
    // Only now: it is asked for before it is let go of.
    if (!(await isAskedFor(place))) await removeAll(directories, place);
  }
}

async function removeAll(directories: Directories, path: string): Promise<void> {
  while (!(await directories.removeTree(path, MAX_ENTRIES, new AbortController().signal)));
}
