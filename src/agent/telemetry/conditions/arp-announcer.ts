import { toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { Announce } from "../../../host/network/ip/announce.ts";
import type { HeldAddress } from "./arp-watch.ts";
import type { Condition } from "./condition-watch.ts";

/** A cluster address that this member holds, and its link. */
type ClusterAddress = Pick<HeldAddress, "link" | "address">;

export interface ArpAnnouncerOptions {
  readonly clock: Clock;
  readonly announce: Announce;
  /** Returns the cluster addresses that this member holds. */
  readonly held: () => readonly ClusterAddress[];
  /** Re-evaluates the held addresses. */
  readonly onChange: () => void;
}

/** Interval of gratuitous ARP on the platform. */
const EVERY_MS = 60_000;
const MAX_HELD = 64;

/** Message when announcements succeed again. */
export const ANNOUNCED_OVER = "The cluster address is announced again";

/** Announces a cluster address as soon as this member holds it, and once a minute while it does. Starts no process without an address. */
export function startArpAnnouncer({ clock, announce, held, onChange }: ArpAnnouncerOptions): {
  refresh(): void;
  conditions(): readonly Condition[];
  close(): void;
} {
  const stop = new AbortController();
  const failures = new Map<string, Condition>();
  /** Time of the last announcement by address. */
  const announcedAt = new Map<string, number>();
  let cancel: (() => void) | undefined;
  let isTelling = false;

  const bounded = (): readonly ClusterAddress[] => (stop.signal.aborted ? [] : held().slice(0, MAX_HELD));

  async function tell({ link, address }: ClusterAddress): Promise<void> {
    const key = keyOf({ link, address });
    announcedAt.set(key, clock.elapsed());
    try {
      await announce(link, address, stop.signal);
      failures.delete(key);
    } catch (error) {
      if (!stop.signal.aborted) failures.set(key, unannounced(link, address, toError(error)));
    }
  }

  /** Announces one address after the other, new ones first. */
  async function tellDue(): Promise<void> {
    for (let next = dueOf(bounded()); next !== undefined; next = dueOf(bounded())) await tell(next);
  }

  function dueOf(addresses: readonly ClusterAddress[]): ClusterAddress | undefined {
    const now = clock.elapsed();
    return addresses.find((one) => now - (announcedAt.get(keyOf(one)) ?? Number.NEGATIVE_INFINITY) >= EVERY_MS);
  }

  function refresh(): void {
    const addresses = bounded();
    const keys = new Set(addresses.map(keyOf));
    for (const key of announcedAt.keys()) if (!keys.has(key)) announcedAt.delete(key);
    for (const key of failures.keys()) if (!keys.has(key)) failures.delete(key);
    cancel?.();
    cancel = undefined;
    if (isTelling || addresses.length === 0) return;
    if (dueOf(addresses) === undefined) {
      const first = Math.min(...addresses.map((one) => announcedAt.get(keyOf(one)) ?? 0));
      cancel = clock.after(Math.max(first + EVERY_MS - clock.elapsed(), 0), refresh);
      return;
    }
    isTelling = true;
    void tellDue().finally(() => {
      isTelling = false;
      refresh();
      onChange();
    });
  }

  return {
    refresh,
    conditions: () => [...failures.values()],
    close() {
      stop.abort();
      cancel?.();
    },
  };
}

const keyOf = ({ link, address }: ClusterAddress): string => `${link} ${address}`;

function unannounced(link: string, address: string, { message }: Error): Condition {
  return {
    eventType: "Network Error",
    object: `announce:${address}`,
    level: "WARNING",
    message: `The cluster address ${address} is not announced to the neighbours on ${link}: ${message}`.slice(0, 512),
    details: { address, interface: link },
    over: ANNOUNCED_OVER,
  };
}
