import { readAddresses, readLinks, type Link, type LinkAddress } from "../../../host/network/ip/links.ts";
import { parseLinkCounters, type LinkCounters } from "../../../host/proc.ts";
import type { Reader } from "../../../host/reader.ts";
import { readNameServers } from "../../../host/net/resolver.ts";
import type { NetworkStatusAnswer } from "../../../protocol/triggers/diagnostics.ts";
import { NoBody } from "../../../protocol/triggers/bodies.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";
import { defined } from "../../../lib/defined.ts";

/** Limit of one reply. */
const MAX_LINKS = 1000;

/** Returns the current links with their addresses and counters, and the name servers. */
export function networkStatus(reader: Reader, addressesOf = readAddresses): OneShotTrigger<NoBody> {
  return {
    event: "network-status",
    kind: "one-shot",
    request: NoBody,
    deadlineMs: 15_000,
    needsDataPlane: false,
    readOnly: true,
    agents: true,
    handle(): Promise<NetworkStatusAnswer> {
      const links = readLinks(reader);
      const addresses = addressesOf();
      const counters = parseLinkCounters(reader.read("/proc/net/dev") ?? "");
      const interfaces = links.slice(0, MAX_LINKS).map((link) => shown(link, addresses, counters.get(link.name)));
      const truncated = links.length > MAX_LINKS ? { truncated: true as const } : {};
      return Promise.resolve({ interfaces, nameServers: [...readNameServers(reader)], ...truncated });
    },
  };
}

function shown(
  { name, operState, mac, mtu, speedMbps, duplex, hasCarrier }: Link,
  addresses: readonly LinkAddress[],
  counters: LinkCounters | undefined,
): NetworkStatusAnswer["interfaces"][number] {
  const own = addresses.filter((one) => one.link === name);
  return {
    name,
    state: operState.toUpperCase(),
    addresses: own.map(({ address, prefix }) => `${address}/${prefix}`),
    ...defined({ mac, mtu, speedMbps, duplex, carrier: hasCarrier }),
    ...trafficOf(counters),
  };
}

function trafficOf(counters: LinkCounters | undefined): Pick<NetworkStatusAnswer["interfaces"][number], "rx" | "tx"> {
  if (counters === undefined) return {};
  const { rxBytes, rxErrors, rxDropped, txBytes, txErrors, txDropped } = counters;
  return {
    rx: { bytes: rxBytes, errors: rxErrors, dropped: rxDropped },
    tx: { bytes: txBytes, errors: txErrors, dropped: txDropped },
  };
}
