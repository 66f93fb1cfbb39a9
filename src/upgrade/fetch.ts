import { AgentError, HostError, InputError } from "../errors.ts";
import { fetchedBytes, fetchFile } from "../host/releases/fetch-file.ts";
import type { Files } from "../host/files/files.ts";
import { besideOf, readWhole, type ReleaseSource } from "../host/releases/release-source.ts";
import { withRetries, type FetchLimits, type Retrying } from "../host/releases/retries.ts";
import type { SelfTester } from "../host/process/self-tester.ts";
import { packingOf, unpackVersion } from "../host/releases/unpack.ts";
import type { InstalledVersion, Versions } from "../host/releases/versions.ts";
import { buildTime, packageVersion } from "../lib/build-info.ts";
import { parseStrictJson } from "../lib/formats/strict-json.ts";
import { describeIssues } from "../protocol/channel/envelope.ts";
import {
  ReleaseKeys,
  type Architecture,
  type ReleaseClaims,
  type ReleaseFile,
  type UpgradeRequest,
  type UpgradeStanding,
} from "../protocol/documents/release.ts";
import { judgeRelease, keySetOf, MAX_MANIFEST_BYTES, readManifest, type Situation, type Verdict } from "./manifest.ts";

/** Dependencies of a fetch. */
export interface FetchDeps extends Retrying {
  readonly limits?: FetchLimits;
  readonly source: ReleaseSource;
  readonly versions: Versions;
  readonly files: Files;
  readonly selfTester: SelfTester;
  /** Paths of the files of trusted keys; the first existing one is used. */
  readonly keyPaths: readonly string[];
  /** The running program, which is upgraded. */
  readonly own: { readonly version: string; readonly build: string };
  readonly architecture: Architecture | undefined;
  /** Called at the start of each step, with the version once it is known. */
  readonly onStep: (step: NonNullable<UpgradeStanding["step"]>, to: string | undefined) => Promise<void> | void;
}

export type FetchRequest = Pick<UpgradeRequest, "from" | "by" | "isForced">;

/** A complete and tested version, ready to be placed. */
export interface Fetched {
  readonly version: string;
  readonly build: string;
}

/** Disk space that always stays free, in bytes. */
const RESERVE_BYTES = 64 * 1024 * 1024;
const KEYS_LIMITS = { maxBytes: 64 * 1024, maxDepth: 8 };

/**
 * Returns the claims of a manifest and whether the release would be accepted.
 * @throws errors of reading it; a refusal is a result
 */
export async function checkRelease(
  request: FetchRequest,
  deps: Omit<FetchDeps, "selfTester" | "onStep">,
  signal: AbortSignal,
): Promise<{ readonly claims: ReleaseClaims; readonly verdict: Verdict }> {
  // Keys come first, because nothing works without them.
  const keys = await keySetOf(await readReleaseKeys(deps.keyPaths, deps.files));
  const read = (): Promise<Uint8Array> => readWhole(deps, request.from, MAX_MANIFEST_BYTES, signal);
  const bytes = await withRetries(read, deps, signal);
  const claims = await readManifest(bytes, keys);
  return { claims, verdict: judgeRelease(claims, situationOf(request, deps, await deps.versions.list())) };
}

/**
 * Fetches, unpacks and tests the version of a manifest; `versions.place` then switches to it. The caller holds the lock. Resumes
 * after an interruption; an already staged version is only tested again.
 * @throws {InputError} the code of a defect of the release; {HostError} `disk-too-small`, `self-test-failed` (the version is then
 *   marked as failed) and errors of the machine; {SessionError} errors of the network.
 */
export async function fetchRelease(request: FetchRequest, deps: FetchDeps, signal: AbortSignal): Promise<Fetched> {
  const { versions, onStep } = deps;
  await onStep("fetching", undefined);
  const { claims, verdict } = await checkRelease(request, deps, signal);
  await onStep("verifying", claims.version);
  if (verdict.is === "refused") throw new InputError(verdict.code, verdict.message);
  const { version, file } = verdict;
  const staged = await versions.staged(version, file.sha256);
  if (staged !== undefined) {
    // The machine may have changed since staging.
    await onStep("testing", version);
    await testVersion(version, staged, `${await versions.staging()}/${version}.work`, deps, signal);
    return { version, build: claims.build };
  }
  const packing = packingOf(file.name);
  const archiveName = `${file.sha256}.tar.${packing}`;
  await onStep("fetching", version);
  const staging = await versions.staging();
  await versions.sweep([archiveName, `${archiveName}.from`]);
  const archive = `${staging}/${archiveName}`;
  await judgeSpace(staging, file, await fetchedBytes(archive), deps.files);
  const { size, sha256 } = file;
  await fetchFile({ address: besideOf(request.from, file.name), path: archive, size, sha256 }, deps, signal);
  await onStep("unpacking", version);
  const unpacked = `${staging}/${version}.unpacked`;
  const { architecture } = deps;
  if (architecture === undefined)
    throw new InputError("wrong-architecture", "the release has no package for this architecture");
  const unpacking = { archive, packing, into: unpacked, version, unpackedSize: file.unpackedSize, architecture };
  try {
    await unpackVersion(unpacking, signal);
  } catch (error) {
    await versions.sweep([archiveName, `${archiveName}.from`]);
    throw error;
  }
  await onStep("testing", version);
  await testVersion(version, unpacked, `${staging}/${version}.work`, deps, signal);
  await versions.stage(`${version}.unpacked`, version, sha256);
  return { version, build: claims.build };
}

async function testVersion(
  version: string,
  path: string,
  work: string,
  { selfTester, versions, clock }: FetchDeps,
  signal: AbortSignal,
): Promise<void> {
  const result = await selfTester.run({ path, work }, signal);
  if (result.is === "passed") return;
  const message = `version ${version} fails its own test: ${result.check}: ${result.message}`.slice(0, 1024);
  await versions.fail(version, { code: "self-test-failed", message, at: Math.floor(clock.now() / 1000) });
  throw new HostError("self-test-failed", message, { details: { check: result.check } });
}

/** Checks the disk space before the download: three times the package, plus the unpacked content. */
export async function judgeSpace(staging: string, file: ReleaseFile, have: number, files: Files): Promise<void> {
  const { size, unpackedSize } = file;
  const needed = Math.max(3 * size, size + unpackedSize + RESERVE_BYTES) - Math.min(have, size);
  const { freeBytes } = await files.space(staging);
  if (freeBytes >= needed) return;
  const what = `the package of ${size} bytes, ${unpackedSize} bytes unpacked`;
  const message = `${staging} has ${freeBytes} bytes free, and ${needed} are needed for ${what}; free some space and retry`;
  throw new HostError("disk-too-small", message, { details: { freeBytes, needed } });
}

function situationOf(
  { by, isForced }: FetchRequest,
  { own, clock, architecture }: Pick<FetchDeps, "own" | "clock" | "architecture">,
  installed: readonly InstalledVersion[],
): Situation {
  return {
    own: packageVersion(own),
    base: installed.find(({ isBase }) => isBase)?.version,
    builtAt: (buildTime(own) ?? 0) / 1000,
    architecture,
    now: Math.floor(clock.now() / 1000),
    failed: new Map(
      installed.flatMap(({ version, failed }) => (failed === undefined ? [] : [[version, failed.message]])),
    ),
    // Only an operator at the machine may force a downgrade.
    isForced: isForced && by === "operator",
  };
}

/**
 * Returns the keys that may sign releases, from the first existing file.
 * @throws {InputError} `bad-release-keys`; an unreadable file does not fall back to the next one
 */
async function readReleaseKeys(paths: readonly string[], files: Files): Promise<ReleaseKeys> {
  for (const path of paths) {
    const text = await files.read(path);
    if (text === undefined) continue;
    const bad = (why: string, cause?: unknown): InputError =>
      new InputError("bad-release-keys", `${path}: ${why}`, { cause });
    let json: unknown;
    try {
      json = parseStrictJson(text, KEYS_LIMITS);
    } catch (error) {
      throw bad(error instanceof AgentError ? error.message : "cannot be read", error);
    }
    const parsed = ReleaseKeys.safeParse(json);
    if (parsed.success) return parsed.data;
    throw bad(describeIssues(parsed.error).join("; "), parsed.error);
  }
  throw new InputError("bad-release-keys", `no file of trusted keys exists: ${paths.join(", ")}`);
}
