import type { NetworkConfig } from "../../protocol/sections/network/config.ts";

/** An address without its prefix length, and the link that it belongs on. */
export interface ClusterAddress {
  readonly link: string;
  readonly address: string;
}

/** The addresses that only the active member of a cluster holds. Pure. */
export function clusterAddresses({ interfaces }: Pick<NetworkConfig, "interfaces">): readonly ClusterAddress[] {
  const of = (link: string, addresses: readonly string[]): readonly ClusterAddress[] =>
    addresses.map((address) => ({ link, address: address.split("/", 1)[0] ?? "" }));
  return interfaces.flatMap(({ nic, clusterIp, subInterfaces }) => [
    ...of(nic, clusterIp === undefined ? [] : [clusterIp]),
    ...subInterfaces.flatMap(({ link, roleBound = [] }) => of(link, roleBound)),
  ]);
}
