import { listenNetlink } from "../netlink-listener.ts";

/** Hears that somebody changes nf_tables in this network namespace. */
export interface RulesetWatch {
  /** What has changed until now is no matter; the next change is told. */
  renew(): void;
  close(): void;
}

/** Tells of the next change once it has been renewed, and then of none until the next time: however many follow cost nothing. */
export type WatchRuleset = (onChange: () => void) => RulesetWatch;

const NETLINK_NETFILTER = 12;
/** NFNLGRP_NFTABLES of linux/netfilter/nfnetlink.h is 7, and the first group has the lowest bit. */
const NFTABLES_GROUP = 1 << 6;

/** Tells of nothing where the kernel does not tell us, so that whoever watches has to look now and then anyway. */
export const watchRuleset: WatchRuleset = (onChange) => {
  let isTold = true;
  const drained = (): boolean => {
    let hasAny = false;
    listener?.drain(() => {
      hasAny = true;
    });
    return hasAny;
  };
  const listener = listenNetlink({
    protocol: NETLINK_NETFILTER,
    groups: NFTABLES_GROUP,
    onArrival: () => {
      // The signal is also that of other sockets. Once it was told nothing is read, and the kernel gives no signal for more of them.
      if (isTold || !drained()) return;
      isTold = true;
      onChange();
    },
  });
  return {
    renew() {
      drained();
      isTold = false;
    },
    close: () => listener?.close(),
  };
};
