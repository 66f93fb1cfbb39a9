import type { Clock } from "../../../host/clock.ts";
import type { ReadNatCounters } from "../../../host/network/firewall/nat-counters.ts";

/** What is known of one translation; times in Unix seconds. */
export interface NatHits {
  readonly hits: number;
  readonly initialHit: number | undefined;
  readonly latestHit: number | undefined;
}

interface Entry extends NatHits {
  /** The kernel's counter when it was last read. */
  readonly seen: number;
}

export type NatBook = ReadonlyMap<string, Entry>;

const SAMPLE_MS = 10_000;
/** Reading thousands takes a while, so they are read less often. */
const SLOW_FROM = 500;
const SLOW_SAMPLE_MS = 60_000;

/**
 * The book after one reading: what a counter rose by was hit, and one that fell was begun anew. The first reading of all only says
 * where each stands. Pure; `now` in Unix seconds.
 */
export function nextNatBook(book: NatBook | undefined, counters: ReadonlyMap<string, number>, now: number): NatBook {
  const next = new Map<string, Entry>();
  for (const [tracker, packets] of counters) {
    const before = book?.get(tracker) ?? NEVER;
    const rise = book === undefined ? 0 : packets >= before.seen ? packets - before.seen : packets;
    next.set(tracker, {
      hits: before.hits + rise,
      seen: packets,
      initialHit: before.initialHit ?? (rise > 0 ? now : undefined),
      latestHit: rise > 0 ? now : before.latestHit,
    });
  }
  return next;
}

const NEVER: Entry = { hits: 0, seen: 0, initialHit: undefined, latestHit: undefined };

export interface NatWatch {
  /** Begins or ends sampling, as there are translations or not. */
  look(): void;
  /** The hits up to now, by tracker. @throws as the reading of counters. */
  hits(signal: AbortSignal): Promise<ReadonlyMap<string, NatHits>>;
  /** Begins these anew; answers how many there were. */
  reset(trackers: Iterable<string>): number;
  close(): void;
}

export interface NatWatchOptions {
  readonly clock: Clock;
  readonly read: ReadNatCounters;
  /** How many translations there are. */
  readonly size: () => number;
  readonly onError: (error: unknown) => void;
}

/** Counts hits since the start of the agent, and notes the first and the last; starts no process while there is nothing to count. */
export function startNatWatch({ clock, read, size, onError }: NatWatchOptions): NatWatch {
  const stop = new AbortController();
  let book: NatBook | undefined;
  let cancel: (() => void) | undefined;
  let hasTried = false;

  async function sample(signal: AbortSignal): Promise<NatBook> {
    hasTried = true;
    const counters = await read(signal);
    book = nextNatBook(book, counters, Math.floor(clock.now() / 1000));
    return book;
  }

  function schedule(ms: number): void {
    cancel = clock.after(ms, () => {
      sample(stop.signal)
        .catch((error: unknown) => {
          if (!stop.signal.aborted) onError(error);
        })
        .finally(() => {
          cancel = undefined;
          look();
        });
    });
  }

  function look(): void {
    const count = stop.signal.aborted ? 0 : size();
    if (count === 0) {
      cancel?.();
      cancel = undefined;
      // Of translations that come later every hit is new.
      book = book === undefined ? undefined : new Map();
    } else if (cancel === undefined) {
      schedule(!hasTried ? 0 : count >= SLOW_FROM ? SLOW_SAMPLE_MS : SAMPLE_MS);
    }
  }

  return {
    look,
    hits: (signal) => (size() === 0 ? Promise.resolve(new Map()) : sample(signal)),
    reset(trackers) {
      const next = new Map(book);
      let count = 0;
      for (const tracker of trackers) {
        const entry = next.get(tracker);
        if (entry !== undefined) next.set(tracker, { ...NEVER, seen: entry.seen });
        count += 1;
      }
      if (book !== undefined) book = next;
      return count;
    },
    close() {
      stop.abort();
      cancel?.();
    },
  };
}
