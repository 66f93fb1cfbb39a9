import type { Clock } from "../../host/clock.ts";
import type { RulesetWatch, WatchRuleset } from "../../host/network/firewall/ruleset-watch.ts";

/** Detects changes of our nftables table by other programs, such as a flush. */
export interface TableWatch {
  /** Called before the table is read; later changes are reported, unless it contains nothing of ours. */
  reading(isOurs: boolean): void;
  close(): void;
}

export interface TableWatchOptions {
  readonly clock: Clock;
  readonly watchRuleset: WatchRuleset;
  readonly onChange: () => void;
}

const TABLE = "holdfast";
/** Time within which our own changes are read again. */
const SETTLE_MS = 500;

/** Listens only while there is a table of ours. */
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
