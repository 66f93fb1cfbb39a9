import fc from "fast-check";
import type { Carrier } from "../../../src/agent/sections/network/actual.ts";
import { EMPTY_RECORD, type NetworkRecord } from "../../../src/host/network/state/record.ts";
import { INITIAL_FLOW_SYSCTLS } from "../../../src/agent/sections/network/flow-times.ts";
import { networkSection } from "../../../src/agent/sections/network/section.ts";
import { wanLinkOf } from "../../../src/agent/sections/network/wan.ts";
import { linkSysctl } from "../../../src/host/network/diff.ts";
import { OUR_PROTOCOL, type NetworkState } from "../../../src/host/network/state/state.ts";
import { aLink, ModelNetwork } from "./model-network.ts";

const NICS = ["eth0", "eth1", "eth2"];

/** A machine as configured by a distribution: a WAN with an address and a default route, and two interfaces that are down. */
export function aMachine(): ModelNetwork {
  return new ModelNetwork({
    links: NICS.map((name) => aLink(name, { isUp: name === "eth0", mtu: name === "eth2" ? 1400 : 1500 })),
    addresses: [{ link: "eth0", address: "198.51.100.10/24", isOurs: false, isDynamic: false }],
    routes: [
      {
        table: 254,
        kind: "unicast",
        destination: "0.0.0.0/0",
        via: "198.51.100.1",
        link: "eth0",
        metric: 0,
        protocol: 4,
        scope: "global",
        isOnLink: false,
      },
    ],
    sysctls: new Map([
      ["net.ipv4.ip_forward", "0"],
      ["net.ipv4.conf.all.rp_filter", "0"],
      ...INITIAL_FLOW_SYSCTLS,
      ...NICS.flatMap((name) => [
        [linkSysctl(name, "rp_filter"), "1"] as const,
        [linkSysctl(name, "arp_ignore"), "0"] as const,
        [linkSysctl(name, "promote_secondaries"), "0"] as const,
      ]),
    ]),
  });
}

/** An agent's records about the machine. */
export interface Notes {
  record: NetworkRecord;
}

/** The section over a model; `carrier` is the socket of its control session. */
export function networkOver(
  model: ModelNetwork,
  carrier?: Carrier,
  notes: Notes = { record: EMPTY_RECORD },
  role?: "active" | "standby",
  vendor = "kvm",
  gateways: readonly string[] = [],
  pathSources: readonly string[] = [],
) {
  return networkSection({
    driver: model,
    record: {
      load: () => Promise.resolve(notes.record),
      save: (next) => {
        notes.record = structuredClone(next);
        return Promise.resolve();
      },
    },
    carrier: () => carrier,
    gateways: () => gateways,
    pathSources: () => pathSources,
    context: () => ({ nodeType: "Node", isMember: role !== undefined }),
    isActiveMember: () => role !== "standby",
    vendor: () => vendor,
    unsupported: () => undefined,
  });
}

/** Counts our entries, except those left to the WAN. */
export function countOurs(state: NetworkState, { record }: Notes): number {
  const wan = wanLinkOf({ state, record, carrier: undefined });
  const isApart = (link: string | undefined): boolean => link !== wan && link?.split(".", 1)[0] !== wan;
  return [
    ...state.links.filter(({ isOurs, name }) => isOurs && isApart(name)),
    ...state.addresses.filter(({ isOurs, link }) => isOurs && isApart(link)),
    ...state.routes.filter(({ protocol, link }) => protocol === OUR_PROTOCOL && isApart(link)),
    ...state.rules.filter(({ protocol }) => protocol === OUR_PROTOCOL),
    ...(state.firewall === undefined ? [] : [state.firewall]),
  ].length;
}

const some = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });
const list = <T>(item: fc.Arbitrary<T>, maxLength = 3) => fc.array(item, { maxLength });
const nics = fc.constantFrom("eth0", "eth1", "eth2", "eth9");
const vrfs = fc.constantFrom("red", "blue", "nowhere");
const blocks = fc.constantFrom<unknown>("10.1.0.0/16", "10.2.0.0/16", "10.2.3.4/24", "0.0.0.0/0", "x");
const hops = fc.constantFrom("198.51.100.1", "192.0.2.254", "10.9.9.9");
const addresses = fc.constantFrom("192.0.2.1/24", "192.0.2.2/24", "198.51.100.10/24", "10.8.0.1/31", "10.8.0.5/32");
const protocol = fc.constantFrom("any", "icmp", "tcp", "udp", "sctp");

const routing = {
  routes: some(
    list(fc.record({ dest: blocks, dev: some(nics), via: some(hops), metric: some(fc.constantFrom(1, 50)) })),
  ),
  nats: some(
    list(
      fc.record({
        source: some(blocks),
        dest: some(blocks),
        toSource: some(fc.constantFrom("172.16.0.0/16", "172.17.1.0/24", "172.17.0.1/32")),
        toDest: some(fc.constantFrom("172.18.0.0/16", "172.18.1.0/24")),
        masquerade: some(fc.boolean()),
      }),
    ),
  ),
  acls: some(
    list(
      fc.record({
        protocol,
        source: blocks,
        dest: blocks,
        ports: some(fc.constantFrom("443", "1000-2000", "0")),
        action: fc.constantFrom("allow", "drop", "reject"),
        line: some(fc.integer({ min: 1, max: 9 })),
      }),
    ),
  ),
  rules: some(
    list(
      fc.record({
        protocol,
        source: fc.constantFrom("public", "private", "10.1.0.0/16"),
        dest: fc.constantFrom("public", "private", "10.2.0.0/16"),
        ports: some(fc.constantFrom("80")),
        in: some(nics),
        action: fc.constantFrom("accept", "drop", "reject", "forward", "dnat", "mirror", "log"),
        iface: some(nics),
        vrf: some(vrfs),
        snat: some(fc.boolean()),
        dnat: some(fc.constantFrom("192.0.2.9", "192.0.2.9:3128")),
        line: some(fc.integer({ min: 1, max: 9 })),
      }),
    ),
  ),
};

/** Sections `network` of documents, with valid and invalid parts. */
export function rawNetworks(): fc.Arbitrary<unknown> {
  const section = fc.record({
    interfaces: some(
      list(
        fc.record({
          nic: nics,
          dhcp: some(fc.boolean()),
          ip: some(addresses),
          gateway: some(hops),
          dns: some(fc.constantFrom(["192.0.2.53"])),
          mtu: some(fc.constantFrom<unknown>(1400, 9000, 1)),
          mode: some(fc.constantFrom("manual")),
          speed: some(fc.constantFrom(100, 1000)),
          duplex: some(fc.constantFrom("full")),
          vrf: some(vrfs),
          addIps: some(list(addresses, 2)),
          routes: some(list(fc.record({ route: blocks, next: some(hops) }))),
          subInterfaces: some(
            list(
              fc.record({
                vlanID: fc.constantFrom<unknown>(10, 20, 4095),
                ip: addresses,
                vrf: some(vrfs),
                routes: some(list(fc.record({ route: blocks, next: hops }), 1)),
              }),
              2,
            ),
          ),
        }),
      ),
    ),
    vrfs: some(
      list(fc.record({ name: fc.constantFrom("red", "blue"), forwarding: some(fc.boolean()), ...routing }), 2),
    ),
    ...routing,
    darkMode: some(fc.boolean()),
    forwarding: some(fc.boolean()),
  });
  return fc.oneof(
    { weight: 8, arbitrary: section },
    { weight: 1, arbitrary: fc.constantFrom<unknown>(undefined, {}, [], "x", null) },
  );
}
