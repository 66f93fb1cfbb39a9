import type { NetworkInterface, Routing, SubInterface } from "../../../protocol/sections/network/config.ts";

/** An interface or VLAN that is in use. */
export interface Member {
  readonly link: string;
  /** With prefix lengths; addresses of a lease are read from the machine. */
  readonly addresses: readonly string[];
  /** Next hop of routes that name none. */
  readonly gateway?: string;
  readonly nic: NetworkInterface;
  readonly vlan?: SubInterface;
}

/** A routing context: the default one, or a VRF. */
export interface Context {
  /** Absent for the default context. */
  readonly vrf?: string;
  readonly table: number;
  readonly routing: Routing;
  readonly forwarding: boolean;
  readonly members: readonly Member[];
}
