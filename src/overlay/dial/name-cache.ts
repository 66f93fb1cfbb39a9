import { lookup, Resolver } from "node:dns/promises";
import { isIP } from "node:net";
import { errnoOf } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";

/** Addresses of a name, with their time to live if it is known. */
export interface Answer {
  readonly addresses: readonly string[];
  readonly ttlSeconds?: number;
}

/** Resolves a name; rejects if the name is unknown or no server answers. */
export type AskName = (name: string) => Promise<Answer>;

/** Caches the addresses of names for their time to live, and longer while no server answers. */
export interface NameCache {
  /** Returns addresses in the order to try them; empty if the name never resolved. */
  resolve(name: string): Promise<readonly string[]>;
  /** Expires an entry early because its addresses failed; asks at most once every 5 s. */
  expireSoon(name: string): void;
  /** Drops every other name. */
  keepOnly(names: ReadonlySet<string>): void;
}

interface Entry {
  addresses: readonly string[];
  freshUntil: number;
  /** When the last query ended, answered or not. */
  askedAt: number;
  asking: Promise<void> | undefined;
}

const MIN_TTL_SECONDS = 5;
const MAX_TTL_SECONDS = 300;
const UNKNOWN_TTL_SECONDS = 30;
/** Maximum wait for a new answer while an old one is cached. */
const PATIENCE_MS = 1000;

export function nameCache(clock: Clock, ask: AskName): NameCache {
  const entries = new Map<string, Entry>();

  const refresh = async (name: string, entry: Entry): Promise<void> => {
    let ttl = MIN_TTL_SECONDS;
    try {
      const { addresses, ttlSeconds = UNKNOWN_TTL_SECONDS } = await ask(name);
      if (addresses.length > 0) {
        entry.addresses = addresses;
        ttl = Math.min(MAX_TTL_SECONDS, Math.max(MIN_TTL_SECONDS, ttlSeconds));
      }
    } catch {
      // Keeps the last good answer and asks again soon.
    }
    entry.askedAt = clock.elapsed();
    entry.freshUntil = entry.askedAt + ttl * 1000;
    entry.asking = undefined;
  };

  return {
    async resolve(name) {
      let entry = entries.get(name);
      if (entry === undefined) {
        entry = { addresses: [], freshUntil: -Infinity, askedAt: -Infinity, asking: undefined };
        entries.set(name, entry);
      }
      if (clock.elapsed() < entry.freshUntil) return entry.addresses;
      entry.asking ??= refresh(name, entry);
      await (entry.addresses.length === 0 ? entry.asking : Promise.race([entry.asking, elapsed(clock, PATIENCE_MS)]));
      return entry.addresses;
    },
    expireSoon(name) {
      const entry = entries.get(name);
      if (entry !== undefined) entry.freshUntil = Math.min(entry.freshUntil, entry.askedAt + MIN_TTL_SECONDS * 1000);
    },
    keepOnly(names) {
      for (const name of entries.keys()) if (!names.has(name)) entries.delete(name);
    },
  };
}

/** Asks the machine's name servers for A and AAAA records (RFC 1035), then its resolver, which includes /etc/hosts. */
export const askMachine: AskName = async (name) => {
  if (isIP(name) !== 0) return { addresses: [name] };
  // Only the machine's resolver knows names without a dot: `localhost`, /etc/hosts, a search list.
  return (name.includes(".") ? await askServers(name) : undefined) ?? { addresses: await lookupAll(name) };
};

async function askServers(name: string): Promise<Answer | undefined> {
  const resolver = new Resolver({ timeout: 2000, tries: 2 });
  const records = await Promise.all([
    resolver.resolve4(name, { ttl: true }).catch(noRecords),
    resolver.resolve6(name, { ttl: true }).catch(noRecords),
  ]);
  const all = records.flat();
  if (all.length === 0) return undefined;
  return { addresses: all.map(({ address }) => address), ttlSeconds: Math.min(...all.map(({ ttl }) => ttl)) };
}

function noRecords(): readonly { address: string; ttl: number }[] {
  return [];
}

async function lookupAll(name: string): Promise<readonly string[]> {
  try {
    const found = await lookup(name, { all: true, order: "ipv4first" });
    return found.map(({ address }) => address);
  } catch (error) {
    if (errnoOf(error) === "ENOTFOUND") return [];
    throw error;
  }
}

function elapsed(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => {
    clock.after(ms, resolve);
  });
}
