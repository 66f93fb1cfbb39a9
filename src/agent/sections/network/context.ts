import type { NetworkInterface, Routing, SubInterface } from "../../../protocol/sections/network/config.ts";

/** An interface or a VLAN that is put to work. */
export interface Member {
  readonly link: string;
  /** With their prefix lengths; those of a lease are found on the machine. */
  readonly addresses: readonly string[];
  /** The next hop of routes that name none. */
  readonly gateway?: string;
  readonly nic: NetworkInterface;
  readonly vlan?: SubInterface;
}

/** A routing context: the default one, or a VRF. */
export interface Context {
  /** Absent: the default one. */
  readonly vrf?: string;
  readonly table: number;
  readonly routing: Routing;
  readonly forwarding: boolean;
  readonly members: readonly Member[];
}
