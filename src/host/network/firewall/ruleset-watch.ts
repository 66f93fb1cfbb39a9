import { Buffer } from "node:buffer";
import { listenNetlink } from "../netlink/netlink-listener.ts";
import { isAbout, messagesOf } from "../netlink/nft-messages.ts";

/** Hears that somebody changes nf_tables in this network namespace. */
export interface RulesetWatch {
  /** What has changed until now is no matter; the next change is told. */
  renew(): void;
  close(): void;
}

/**
 * Tells of the next change once it has been renewed, and then of none until the next time: however many follow cost nothing. With a
 * `table` of the family `inet`, only of a change of that.
 */
export type WatchRuleset = (onChange: () => void, table?: string) => RulesetWatch;

const NETLINK_NETFILTER = 12;
/** NFNLGRP_NFTABLES of linux/netfilter/nfnetlink.h is 7, and the first group has the lowest bit. */
const NFTABLES_GROUP = 1 << 6;

/** Tells of nothing where the kernel does not tell us, so that whoever watches has to look now and then anyway. */
export const watchRuleset: WatchRuleset = (onChange, table) => {
  let isTold = true;
  const drained = (): boolean => {
    let hasAny = false;
    listener?.drain((datagram) => {
      hasAny ||= table === undefined || datagram === undefined || mentions(datagram, table);
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

function mentions({ buffer, byteOffset, byteLength }: DataView, table: string): boolean {
  const bytes = Buffer.from(buffer, byteOffset, byteLength);
  for (const message of messagesOf(bytes)) if (isAbout(message, table)) return true;
  return false;
}
