import { hostDirectories } from "../host/files/directories.ts";
import { FETCH_LIMITS } from "../host/releases/retries.ts";
import type { NetworkTargets } from "../protocol/overlay/network-targets.ts";
import type { ReleaseCheck } from "../protocol/documents/release.ts";
import { checkRelease } from "./fetch.ts";
import { handOver, type HandedOver } from "./hand-over.ts";
import { openFetching } from "./open-fetching.ts";

/** One attempt: a person waits for the result. */
const ONCE = { ...FETCH_LIMITS, attempts: 1 };

export interface CheckOptions {
  readonly from: string;
  readonly isForced: boolean;
  readonly versionsPath: string;
  readonly packagePath: string;
  readonly targets: NetworkTargets | undefined;
}

/** Returns the release that a manifest offers to this machine. Fetches only the manifest, in one attempt. */
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
 * Copies a local release to where the upgrade program can read it; returns undefined if no package created the directory of
 * versions.
 * @throws errors of `handOver`
 */
export async function handOverHere(options: CheckOptions, signal: AbortSignal): Promise<HandedOver | undefined> {
  const { from, isForced, ...where } = options;
  const directories = hostDirectories();
  if ((await directories.kind(where.versionsPath)) === undefined) return undefined;
  const deps = openFetching(where, () => undefined, signal);
  return handOver({ from, isForced }, { ...deps, versionsPath: where.versionsPath, directories }, signal);
}
