import { isDeepStrictEqual } from "node:util";
import type { Clock } from "../../host/clock.ts";
import type { ForwardDrop, ReadForwardDrops } from "../../host/network/firewall/forward-drops.ts";
import type { RulesetWatch, WatchRuleset } from "../../host/network/firewall/ruleset-watch.ts";

/** Finds chains of other programs that drop forwarded packets. */
export interface ForwardWatch {
  /** Returns the last findings; while the machine forwards for us they are refreshed. */
  drops(isForwarding: boolean): readonly ForwardDrop[];
  close(): void;
}

export interface ForwardWatchOptions {
  readonly clock: Clock;
  readonly read: ReadForwardDrops;
  readonly watchRuleset: WatchRuleset;
  /** Called when the findings changed. */
  readonly onChange: () => void;
}

/** Interval without a reported change, since the kernel may not report all. */
const EVERY_MS = 60_000;
/** Time for the steps of one change, and the minimum interval while rules change all the time. */
const SETTLE_MS = 500;
const SPACING_MS = 10_000;

/** Reads the rules once a minute and soon after a change, in one process, and never while nothing is forwarded. */
export function startForwardWatch(options: ForwardWatchOptions): ForwardWatch {
  const { clock, read, watchRuleset, onChange } = options;
  const ending = new AbortController();
  let found: readonly ForwardDrop[] = [];
  let isWanted = false;
  let isReading = false;
  let hasChanged = false;
  let readAt = -Infinity;
  let ruleset: RulesetWatch | undefined;
  let cancel: (() => void) | undefined;

  const readAfter = (ms: number): void => {
    cancel?.();
    cancel = clock.after(ms, readRules);
  };
  const readRules = (): void => {
    cancel = undefined;
    isReading = true;
    hasChanged = false;
    // Before reading, so that a change during it is reported.
    ruleset ??= watchRuleset(onRuleset);
    ruleset.renew();
    // On a read error the last findings stay.
    read(ending.signal)
      .then(take, () => undefined)
      .finally(() => {
        isReading = false;
        readAt = clock.elapsed();
        if (isWanted && !ending.signal.aborted) readAfter(hasChanged ? SPACING_MS : EVERY_MS);
        else stopWatching();
      });
  };
  const onRuleset = (): void => {
    hasChanged = true;
    if (!isReading) readAfter(Math.max(SETTLE_MS, readAt + SPACING_MS - clock.elapsed()));
  };
  const take = (drops: readonly ForwardDrop[]): void => {
    if (!isWanted || ending.signal.aborted || isDeepStrictEqual(drops, found)) return;
    found = drops;
    onChange();
  };
  const stopWatching = (): void => {
    cancel?.();
    cancel = undefined;
    ruleset?.close();
    ruleset = undefined;
  };
  return {
    drops(isForwarding) {
      isWanted = isForwarding;
      if (!isForwarding) {
        found = [];
        if (!isReading) stopWatching();
      } else if (cancel === undefined && !isReading && !ending.signal.aborted) {
        readAfter(0);
      }
      return found;
    },
    close() {
      ending.abort();
      stopWatching();
    },
  };
}
