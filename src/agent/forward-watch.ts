import { isDeepStrictEqual } from "node:util";
import type { Clock } from "../host/clock.ts";
import type { ForwardDrop, ReadForwardDrops } from "../host/network/forward-drops.ts";

/** Knows which chains of other programs refuse what this machine forwards. */
export interface ForwardWatch {
  /** Those that were found last; as long as the machine forwards for us they are looked for now and then. */
  drops(isForwarding: boolean): readonly ForwardDrop[];
  close(): void;
}

export interface ForwardWatchOptions {
  readonly clock: Clock;
  readonly read: ReadForwardDrops;
  /** Others were found than before. */
  readonly onChange: () => void;
}

const EVERY_MS = 60_000;

/** Looks once a minute, in one process, and never while nothing is forwarded. */
export function startForwardWatch({ clock, read, onChange }: ForwardWatchOptions): ForwardWatch {
  const ending = new AbortController();
  let found: readonly ForwardDrop[] = [];
  let isWanted = false;
  let cancel: (() => void) | undefined;

  const lookAfter = (ms: number): void => {
    cancel = clock.after(ms, () => {
      // What cannot be read is as it was, until it can.
      read(ending.signal)
        .then(take, () => undefined)
        .finally(() => {
          cancel = undefined;
          if (isWanted && !ending.signal.aborted) lookAfter(EVERY_MS);
        });
    });
  };
  const take = (drops: readonly ForwardDrop[]): void => {
    if (!isWanted || ending.signal.aborted || isDeepStrictEqual(drops, found)) return;
    found = drops;
    onChange();
  };
  return {
    drops(isForwarding) {
      isWanted = isForwarding;
      if (!isForwarding) found = [];
      else if (cancel === undefined && !ending.signal.aborted) lookAfter(0);
      return found;
    },
    close() {
      ending.abort();
      cancel?.();
    },
  };
}
