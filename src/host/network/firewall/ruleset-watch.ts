import { Buffer } from "node:buffer";
import { listenNetlink } from "../netlink/netlink-listener.ts";
import { isAbout, messagesOf } from "../netlink/nft-messages.ts";

/** Detects changes of nf_tables in this network namespace. */
export interface RulesetWatch {
  /** Discards changes up to this moment and reports the next one. */
  renew(): void;
  close(): void;
}

/**
 * Reports the first change after each `renew`, so that further changes cost nothing. With a `table` of the family `inet`, reports
 * only changes of that table.
 */
export type WatchRuleset = (onChange: () => void, table?: string) => RulesetWatch;

const NETLINK_NETFILTER = 12;
/** NFNLGRP_NFTABLES of linux/netfilter/nfnetlink.h is 7; the first group has the lowest bit. */
const NFTABLES_GROUP = 1 << 6;

/** Watches through netlink; reports nothing if the kernel does not notify, so the caller must also poll. */
export const watchRuleset: WatchRuleset = (onChange, table) => {
  let isReported = true;
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
      // Other sockets use the same signal. After a report nothing is read, and the kernel sends no signal for further changes.
      if (isReported || !drained()) return;
      isReported = true;
      onChange();
    },
  });
  return {
    renew() {
      drained();
      isReported = false;
    },
    close: () => listener?.close(),
  };
};

function mentions({ buffer, byteOffset, byteLength }: DataView, table: string): boolean {
  const bytes = Buffer.from(buffer, byteOffset, byteLength);
  for (const message of messagesOf(bytes)) if (isAbout(message, table)) return true;
  return false;
}
