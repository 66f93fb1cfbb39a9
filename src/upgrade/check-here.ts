import { hostDirectories } from "../host/files/directories.ts";
import { FETCH_LIMITS } from "../host/releases/retries.ts";
import type { NetworkTargets } from "../protocol/overlay/network-targets.ts";
import type { ReleaseCheck } from "../protocol/documents/release.ts";
import { checkRelease } from "./fetch.ts";
import { handOver, type HandedOver } from "./hand-over.ts";
import { openFetching } from "./open-fetching.ts";

/** A person who only asks is told at once. */
const ONCE = { ...FETCH_LIMITS, attempts: 1 };

export interface CheckOptions {
  readonly from: string;
  readonly isForced: boolean;
  readonly versionsPath: string;
  readonly packagePath: string;
  readonly targets: NetworkTargets | undefined;
}

/** What a manifest offers to this machine. Nothing is fetched but the manifest, and that once. */
export async function checkHere(options: CheckOptions, signal: AbortSignal): Promise<ReleaseCheck> {
  const { from, isForced, ...where } = options;
  const deps = openFetching(where, () => undefined, signal);
  const request = { from, isForced, by: "operator" as const };
  const { claims, verdict } = await checkRelease(request, { ...deps, limits: ONCE }, signal);
  const offer = { version: claims.version, build: claims.build };
  if (verdict.is === "taken") return { ...offer, isTaken: true };
  return { ...offer, isTaken: false, reason: { code: verdict.code, message: verdict.message } };
}

/**
 * Puts a release of this machine's own files where the upgrade's program can read it; undefined where no package has made room for versions.
 * @throws what `handOver` throws
 */
export async function handOverHere(options: CheckOptions, signal: AbortSignal): Promise<HandedOver | undefined> {
  const { from, isForced, ...where } = options;
  const directories = hostDirectories();
  if ((await directories.kind(where.versionsPath)) === undefined) return undefined;
  const deps = openFetching(where, () => undefined, signal);
  return handOver({ from, isForced }, { ...deps, versionsPath: where.versionsPath, directories }, signal);
}
