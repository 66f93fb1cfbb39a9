import type { NetworkConfig } from "../../protocol/sections/network/config.ts";

/** An address without prefix length, and its link. */
export interface ClusterAddress {
  readonly link: string;
  readonly address: string;
}

/** Returns the addresses that only a cluster's active member holds. Pure. */
export function clusterAddresses({ interfaces }: Pick<NetworkConfig, "interfaces">): readonly ClusterAddress[] {
  const of = (link: string, addresses: readonly string[]): readonly ClusterAddress[] =>
    addresses.map((address) => ({ link, address: address.split("/", 1)[0] ?? "" }));
  return interfaces.flatMap(({ nic, clusterIp, subInterfaces }) => [
    ...of(nic, clusterIp === undefined ? [] : [clusterIp]),
    ...subInterfaces.flatMap(({ link, roleBound = [] }) => of(link, roleBound)),
  ]);
}
