import type { PathId } from "./peer-dialer.ts";

/** A path as input of the choice. `upSince` is monotonic; undefined while the path is down. */
export interface Candidate extends PathId {
  readonly isDefault: boolean;
  readonly upSince: number | undefined;
  readonly rttMs: number | undefined;
}

/** The path for new traffic, and another path that has been better, since when. */
export interface Choice {
  readonly pathId: PathId | undefined;
  readonly better: { readonly pathId: PathId; readonly since: number } | undefined;
}

export const NO_CHOICE: Choice = { pathId: undefined, better: undefined };

/** Time for which another path must be better before traffic moves from a path that is up. */
export const HOLD_MS = 10_000;
/** Another path is clearly better by 20 % and 2 ms. */
const CLEAR_SHARE = 0.8;
const CLEAR_MS = 2;

/** Returns the paths that are up, the best first: default paths, then by round trip. Pure. */
export function ranked<C extends Candidate>(candidates: readonly C[]): readonly C[] {
  return candidates
    .filter(({ upSince }) => upSince !== undefined)
    .sort((a, b) => Number(b.isDefault) - Number(a.isDefault) || (a.rttMs ?? Infinity) - (b.rttMs ?? Infinity) || 0);
}

/**
 * Returns the next choice: keeps the current path while it is up, until another was clearly better for ten seconds
 * without a break. A default path is better than any other. Pure.
 */
export function choose(candidates: readonly Candidate[], { pathId, better }: Choice, now: number): Choice {
  const best = ranked(candidates)[0];
  const present = candidates.find((one) => pathId !== undefined && isSame(one, pathId));
  if (best === undefined) return { pathId, better: undefined };
  if (present?.upSince === undefined) return { pathId: pathIdOf(best), better: undefined };
  if (!isBetter(best, present)) return { pathId: pathIdOf(present), better: undefined };
  const since = better !== undefined && isSame(better.pathId, best) ? Math.max(better.since, best.upSince ?? now) : now;
  return now - since >= HOLD_MS
    ? { pathId: pathIdOf(best), better: undefined }
    : { pathId: pathIdOf(present), better: { pathId: pathIdOf(best), since } };
}

export function isSame(a: PathId, b: PathId): boolean {
  return a.gateway === b.gateway && a.path === b.path;
}

function isBetter(one: Candidate, present: Candidate): boolean {
  if (isSame(one, present)) return false;
  if (one.isDefault !== present.isDefault) return one.isDefault;
  if (one.rttMs === undefined || present.rttMs === undefined) return false;
  return one.rttMs <= present.rttMs * CLEAR_SHARE && one.rttMs <= present.rttMs - CLEAR_MS;
}

function pathIdOf({ gateway, path }: PathId): PathId {
  return { gateway, path };
}
