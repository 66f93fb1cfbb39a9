import type { Clock } from "../../host/clock.ts";
import type { RulesetWatch, WatchRuleset } from "../../host/network/firewall/ruleset-watch.ts";

/** Knows when somebody else changes the table that holds our firewall, or flushes it with all others. */
export interface TableWatch {
  /** The table is about to be read; what changes from now on is told, unless nothing in it is ours. */
  reading(isOurs: boolean): void;
  close(): void;
}

export interface TableWatchOptions {
  readonly clock: Clock;
  readonly watchRuleset: WatchRuleset;
  readonly onChange: () => void;
}

const TABLE = "holdfast";
/** What we change ourselves is read again within it. */
const SETTLE_MS = 500;

/** Listens while there is something of ours, and costs nothing else. */
export function startTableWatch({ clock, watchRuleset, onChange }: TableWatchOptions): TableWatch {
  let ruleset: RulesetWatch | undefined;
  let cancel: (() => void) | undefined;
  const forget = (): void => {
    cancel?.();
    cancel = undefined;
  };
  const close = (): void => {
    forget();
    ruleset?.close();
    ruleset = undefined;
  };
  const onRuleset = (): void => {
    forget();
    cancel = clock.after(SETTLE_MS, () => {
      cancel = undefined;
      onChange();
    });
  };
  return {
    reading(isOurs) {
      if (!isOurs) return close();
      forget();
      ruleset ??= watchRuleset(onRuleset, TABLE);
      ruleset.renew();
    },
    close,
  };
}
