import type { ForwardDrop } from "../../../host/network/firewall/forward-drops.ts";
import type { NetworkState } from "../../../host/network/state/state.ts";
import type { Issue } from "../../../protocol/documents/reconcile.ts";
import type { NetworkConfig } from "../../../protocol/sections/network/config.ts";
import { networkIssue, type NetworkActual } from "./actual.ts";

/** Sysctl of the whole machine. */
export const IP_FORWARD = "net.ipv4.ip_forward";

/** Reports whether the machine forwards packets under our table. */
export function isForwarding({ firewall, sysctls }: NetworkState): boolean {
  return firewall !== undefined && sysctls.get(IP_FORWARD) === "1";
}

/** Reports whether the machine forwards packets although the section does not need it. Pure. */
export function isForwardingAnyway({ state, record }: Pick<NetworkActual, "state" | "record">): boolean {
  return (record.sysctls[IP_FORWARD] ?? state.sysctls.get(IP_FORWARD)) === "1";
}

/** Reports whether the section needs forwarding. Pure. */
export function passesOn({ forwarding, routing, vrfs }: NetworkConfig): boolean {
  const contexts = [{ ...routing, forwarding }, ...vrfs];
  return contexts.some((one) => one.forwarding || one.nats.length > 0 || one.rules.length > 0);
}

/** Builds the notice about another program's chain that drops forwarded packets: every chain of a hook must accept a packet. Pure. */
export function dropNotice({ table, chain, by }: ForwardDrop): Issue {
  const how = by === "policy drop" ? "by its policy drop" : `by a rule that ends in ${by}`;
  const text = `the chain ${chain} of the table ${table}, another program's, refuses what it does not accept itself, ${how}`;
  return networkIssue("network.forwarding", "forward-dropped", `${text}; forwarded packets need a rule there too`);
}
