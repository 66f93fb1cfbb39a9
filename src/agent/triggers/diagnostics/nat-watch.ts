import type { Clock } from "../../../host/clock.ts";
import type { ReadNatCounters } from "../../../host/network/firewall/nat-counters.ts";

/** State of one translation; times in Unix seconds. */
export interface NatHits {
  readonly hits: number;
  readonly initialHit: number | undefined;
  readonly latestHit: number | undefined;
}

interface Entry extends NatHits {
  /** Last value of the kernel's counter. */
  readonly seen: number;
}

export type NatBook = ReadonlyMap<string, Entry>;

const SAMPLE_MS = 10_000;
/** Longer interval for thousands of translations, since reading them takes time. */
const SLOW_FROM = 500;
const SLOW_SAMPLE_MS = 60_000;

/**
 * Returns the hits after a reading: the increase of each counter; a counter that decreased was reset. The first reading only sets the
 * baseline. Pure; `now` in Unix seconds.
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
  /** Starts or stops sampling, depending on whether there are translations. */
  refresh(): void;
  /** Returns the hits so far by tracker. @throws errors of reading the counters. */
  hits(signal: AbortSignal): Promise<ReadonlyMap<string, NatHits>>;
  /** Resets trackers; returns their number. */
  reset(trackers: Iterable<string>): number;
  close(): void;
}

export interface NatWatchOptions {
  readonly clock: Clock;
  readonly read: ReadNatCounters;
  /** Returns the number of translations. */
  readonly size: () => number;
  readonly onError: (error: unknown) => void;
}

/** Counts hits since the agent started, with the first and last time; starts no process without translations. */
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
          refresh();
        });
    });
  }

  function refresh(): void {
    const count = stop.signal.aborted ? 0 : size();
    if (count === 0) {
      cancel?.();
      cancel = undefined;
      // Later translations count from 0.
      book = book === undefined ? undefined : new Map();
    } else if (cancel === undefined) {
      schedule(!hasTried ? 0 : count >= SLOW_FROM ? SLOW_SAMPLE_MS : SAMPLE_MS);
    }
  }

  return {
    refresh,
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
