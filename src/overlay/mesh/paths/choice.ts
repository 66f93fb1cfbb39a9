import type { Way } from "./ways.ts";

/** A path as far as choosing goes. `upSince` is monotonic; undefined while it is not up. */
export interface Candidate extends Way {
  readonly isDefault: boolean;
  readonly upSince: number | undefined;
  readonly rttMs: number | undefined;
}

/** Which path carries new traffic, and which other has been better, since when. */
export interface Choice {
  readonly way: Way | undefined;
  readonly better: { readonly way: Way; readonly since: number } | undefined;
}

export const NO_CHOICE: Choice = { way: undefined, better: undefined };

/** For how long another path must be better before traffic moves although the present one is up. */
export const HOLD_MS = 10_000;
/** Clearly better: by a fifth and by this. */
const CLEAR_SHARE = 0.8;
const CLEAR_MS = 2;

/** Paths that are up, the best first: default ones, then by round trip. Pure. */
export function ranked<C extends Candidate>(candidates: readonly C[]): readonly C[] {
  return candidates
    .filter(({ upSince }) => upSince !== undefined)
    .sort((a, b) => Number(b.isDefault) - Number(a.isDefault) || (a.rttMs ?? Infinity) - (b.rttMs ?? Infinity) || 0);
}

/**
 * The next choice: the present path as long as it is up, until another has been clearly better without a break for ten seconds; a
 * default path is better than any that is not. Pure.
 */
export function choose(candidates: readonly Candidate[], { way, better }: Choice, now: number): Choice {
  const best = ranked(candidates)[0];
  const present = candidates.find((one) => way !== undefined && isSame(one, way));
  if (best === undefined) return { way, better: undefined };
  if (present?.upSince === undefined) return { way: wayOf(best), better: undefined };
  if (!isBetter(best, present)) return { way: wayOf(present), better: undefined };
  const since = better !== undefined && isSame(better.way, best) ? Math.max(better.since, best.upSince ?? now) : now;
  return now - since >= HOLD_MS
    ? { way: wayOf(best), better: undefined }
    : { way: wayOf(present), better: { way: wayOf(best), since } };
}

export function isSame(a: Way, b: Way): boolean {
  return a.gateway === b.gateway && a.path === b.path;
}

function isBetter(one: Candidate, present: Candidate): boolean {
  if (isSame(one, present)) return false;
  if (one.isDefault !== present.isDefault) return one.isDefault;
  if (one.rttMs === undefined || present.rttMs === undefined) return false;
  return one.rttMs <= present.rttMs * CLEAR_SHARE && one.rttMs <= present.rttMs - CLEAR_MS;
}

function wayOf({ gateway, path }: Way): Way {
  return { gateway, path };
}
