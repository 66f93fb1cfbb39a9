import type { MeshStanding } from "../../host/overlay/client.ts";

/** State of the ingress limit. Times are monotonic milliseconds. */
export interface IngressState {
  readonly isReached: boolean;
  /** Time since which it is above the upper mark, or, once reported, below the lower one. */
  readonly since?: number;
}

const ABOVE = 0.95;
const BELOW = 0.9;
const FOR_MS = 120_000;

/** Evaluates the recent share of the limit: above 95 % for two minutes it is reached, below 90 % for two minutes it ends. Pure. */
export function nextIngress(state: IngressState, share: number, from: number, now: number): IngressState {
  const { isReached } = state;
  const isOther = isReached ? share < BELOW : share > ABOVE;
  if (!isOther) return { isReached };
  // The rate covers the whole time since the previous sample.
  const since = state.since ?? from;
  return now - since >= FOR_MS ? { isReached: !isReached } : { isReached, since };
}

/** Returns the bytes of one direction of each tunnel, by its key. Pure. */
export function bytesOf(
  { paths, clients }: Pick<MeshStanding, "paths" | "clients">,
  direction: "bytesIn" | "bytesOut",
): ReadonlyMap<string, number> {
  return new Map([
    ...paths.map((path) => [`${path.gateway} ${path.id}`, path[direction]] as const),
    ...clients.map((client) => [client.peer, client[direction]] as const),
  ]);
}

/** Returns the increase in bytes; a counter that was reset counts from 0, a new one is ignored. Pure. */
export function risesOf(before: ReadonlyMap<string, number>, after: ReadonlyMap<string, number>): number {
  return [...after].reduce((sum, [key, bytes]) => {
    const earlier = before.get(key);
    if (earlier === undefined) return sum;
    return sum + (bytes < earlier ? bytes : bytes - earlier);
  }, 0);
}
