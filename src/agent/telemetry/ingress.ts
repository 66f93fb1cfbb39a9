import type { MeshStanding } from "../../host/overlay/client.ts";

/** How full a limit is for how long. Times are monotonic milliseconds. */
export interface IngressState {
  readonly isReached: boolean;
  /** Since when it is above, or, once it is told, below the mark of the other. */
  readonly since?: number;
}

const ABOVE = 0.95;
const BELOW = 0.9;
const FOR_MS = 120_000;

/** Judges the share of the limit that came in lately: above 95 % for two minutes it is reached, below 90 % for two it is not. Pure. */
export function nextIngress(state: IngressState, share: number, from: number, now: number): IngressState {
  const { isReached } = state;
  const isOther = isReached ? share < BELOW : share > ABOVE;
  if (!isOther) return { isReached };
  // The rate is of the time from the sample before, all of which counts.
  const since = state.since ?? from;
  return now - since >= FOR_MS ? { isReached: !isReached } : { isReached, since };
}

/** Bytes that came in over each tunnel, by what it is known by. Pure. */
export function bytesOf(
  { paths, clients }: Pick<MeshStanding, "paths" | "clients">,
  way: "bytesIn" | "bytesOut",
): ReadonlyMap<string, number> {
  return new Map([
    ...paths.map((path) => [`${path.gateway} ${path.id}`, path[way]] as const),
    ...clients.map((client) => [client.peer, client[way]] as const),
  ]);
}

/** How many bytes more there are; what began anew counts from nothing, and what was not there before not at all. Pure. */
export function risesOf(before: ReadonlyMap<string, number>, after: ReadonlyMap<string, number>): number {
  return [...after].reduce((sum, [key, bytes]) => {
    const earlier = before.get(key);
    if (earlier === undefined) return sum;
    return sum + (bytes < earlier ? bytes : bytes - earlier);
  }, 0);
}
