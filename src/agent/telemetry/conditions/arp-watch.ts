import { toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { Exec } from "../../../host/process/exec.ts";
import type { Condition } from "./condition-watch.ts";

/** An address that only this node may hold, and its link. */
export interface HeldAddress {
  readonly address: string;
  readonly link: string;
  readonly mac: string;
}

export interface ArpProbeOptions {
  readonly clock: Clock;
  readonly exec: Pick<Exec, "run">;
  readonly held: () => readonly HeldAddress[];
  /** Re-evaluates the held addresses. */
  readonly onChange: () => void;
  readonly onError: (error: Error) => void;
}

const PROBE_MS = 60_000;
const MAX_HELD = 64;

/** Probes once a minute whether another machine answers for an address of this node; starts no process while it holds none. */
export function startArpProbe({ clock, exec, held, onChange, onError }: ArpProbeOptions): {
  refresh(): void;
  conditions(): readonly Condition[];
  close(): void;
} {
  const stop = new AbortController();
  const watches = new Map<string, { readonly watch: ArpWatch; readonly condition: Condition }>();
  let cancel: (() => void) | undefined;

  async function probe({ address, link, mac }: HeldAddress): Promise<void> {
    const bounds = { signal: stop.signal, deadlineMs: 10_000, maxOutputBytes: 64 * 1024 };
    const { stdout } = await exec.run("arping", ["-i", link, "-c", "1", "-w", "2", "--", address], bounds);
    const answers = arpAnswers(stdout);
    const before = watches.get(address);
    const watch = nextArpWatch(before?.watch ?? { isStale: false, clean: 0 }, answers, mac);
    const isKept = before !== undefined && answers.size === 0;
    watches.set(address, { watch, condition: isKept ? before.condition : staleArp(address, link, answers) });
  }

  async function round(): Promise<void> {
    for (const one of held().slice(0, MAX_HELD)) await probe(one);
  }

  function refresh(): void {
    const addresses = new Set(stop.signal.aborted ? [] : held().map(({ address }) => address));
    for (const address of watches.keys()) if (!addresses.has(address)) watches.delete(address);
    if (addresses.size === 0) {
      cancel?.();
      cancel = undefined;
    } else {
      cancel ??= clock.after(PROBE_MS, () => {
        round()
          .catch((error: unknown) => {
            if (!stop.signal.aborted) onError(toError(error));
          })
          .finally(() => {
            cancel = undefined;
            refresh();
            onChange();
          });
      });
    }
  }

  return {
    refresh,
    conditions: () => [...watches.values()].filter(({ watch }) => watch.isStale).map(({ condition }) => condition),
    close() {
      stop.abort();
      cancel?.();
    },
  };
}

/** State of an address: a foreign answer, and the number of consecutive probes without one. */
export interface ArpWatch {
  readonly isStale: boolean;
  readonly clean: number;
}

/** Probes without a foreign answer after which the condition ends. */
const CLEAN_PROBES = 3;

/** Returns the state after one probe of arping(8) for an address that only this node may hold; `own` is its link's MAC. Pure. */
export function nextArpWatch(before: ArpWatch, answers: ReadonlySet<string>, own: string): ArpWatch {
  if ([...answers].some((mac) => mac !== own.toLowerCase())) return { isStale: true, clean: 0 };
  const clean = Math.min(before.clean + 1, CLEAN_PROBES);
  return { isStale: before.isStale && clean < CLEAN_PROBES, clean };
}

/** Parses the MACs that answered from the output of arping(8). */
export function arpAnswers(text: string): ReadonlySet<string> {
  return new Set(
    [...text.matchAll(/ from ([0-9a-f]{2}(?::[0-9a-f]{2}){5}) /giu)].map(([, mac = ""]) => mac.toLowerCase()),
  );
}

/** Message when no other machine answers any more. */
export const STALE_OVER = "No other machine answers for the cluster address any longer";

/** Builds the condition of an address for which another machine answers. */
export function staleArp(address: string, link: string, answers: ReadonlySet<string>): Condition {
  return {
    eventType: "Network Error",
    object: `arp:${address}`,
    level: "CRITICAL",
    message: `Stale ARP: another machine answers for ${address}`,
    details: { address, interface: link, macs: [...answers].slice(0, 8) },
    over: STALE_OVER,
  };
}
