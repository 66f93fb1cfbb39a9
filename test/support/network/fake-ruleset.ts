import type { WatchRuleset } from "../../../src/host/network/firewall/ruleset-watch.ts";

/** Rules that a test reports as changed. */
export function fakeRuleset() {
  let tell: (() => void) | undefined;
  let ofTable: string | undefined;
  let isAwaited = false;
  const watch: WatchRuleset = (onChange, table) => {
    tell = onChange;
    ofTable = table;
    return {
      renew: () => {
        isAwaited = true;
      },
      close: () => {
        tell = undefined;
      },
    };
  };
  const change = (): void => {
    if (!isAwaited) return;
    isAwaited = false;
    tell?.();
  };
  return { watch, change, isWatched: () => tell !== undefined, table: () => ofTable };
}
