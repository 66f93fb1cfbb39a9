import type { Clock } from "../../../host/clock.ts";
import type { ReverseLookup } from "../../../host/net/reverse-lookup.ts";

/** Known names of addresses; lookups do not block. */
export interface ReverseNames {
  /** Returns the name, or the address until its name is known. */
  readonly nameOf: (ip: string) => string;
}

const KEPT_MS = 3_600_000;
const MAX_KEPT = 4096;
const MAX_ASKED = 4;
const MAX_NAME = 253;

/** Resolves names in the background and caches them for an hour. */
export function reverseNames(clock: Pick<Clock, "elapsed">, lookUp: ReverseLookup): ReverseNames {
  const kept = new Map<string, { readonly name: string | undefined; readonly until: number }>();
  const asked = new Set<string>();

  function ask(ip: string): void {
    if (asked.size >= MAX_ASKED || asked.has(ip)) return;
    asked.add(ip);
    void lookUp(ip)
      .catch(() => undefined)
      .then((name) => {
        asked.delete(ip);
        const [oldest] = kept.keys();
        if (oldest !== undefined && kept.size >= MAX_KEPT) kept.delete(oldest);
        kept.delete(ip);
        const isName = name !== undefined && name !== "" && name.length <= MAX_NAME;
        kept.set(ip, { name: isName ? name : undefined, until: clock.elapsed() + KEPT_MS });
      });
  }

  return {
    nameOf(ip) {
      const known = kept.get(ip);
      if (known === undefined || known.until <= clock.elapsed()) ask(ip);
      return known?.name ?? ip;
    },
  };
}
