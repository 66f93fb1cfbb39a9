/* oxlint-disable oxc/no-map-spread -- arbitraries are made once, and their maps are no loops */
import fc from "fast-check";
import { linkSysctl } from "../../../src/host/network/diff.ts";
import { firewallDigest } from "../../../src/host/network/firewall/firewall.ts";
import {
  OUR_PROTOCOL,
  type LinkState,
  type LinkTarget,
  type NetworkState,
  type NetworkTarget,
} from "../../../src/host/network/state/state.ts";
import { aLink } from "./model-network.ts";

const NICS = ["eth0", "eth1", "eth2"];
const ADDRESSES = ["192.0.2.1/24", "192.0.2.2/24", "192.0.2.3/25", "10.0.0.1/24", "10.0.0.1/32", "10.9.0.1/16"];
const GATEWAYS = ["192.0.2.254", "10.0.0.254", undefined];
const DESTINATIONS = ["0.0.0.0/0", "10.1.0.0/16", "10.2.0.0/16"];
const SYSCTLS = ["net.ipv4.ip_forward", "net.ipv4.conf.eth0.rp_filter"];

const bool = fc.boolean();
const options = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> => fc.option(value, { nil: undefined });

const vlan = fc.record({
  name: fc.constantFrom("eth0.10", "eth1.20"),
  parent: fc.constantFrom("eth0", "eth1"),
  vlanId: fc.constantFrom(10, 20),
  isUp: bool,
  mtu: fc.constantFrom(1400, 1500),
});
const vrf = fc.record({ name: fc.constantFrom("red", "blue"), table: fc.constantFrom(1000, 1001), isUp: bool });
const nic = fc.record({
  name: fc.constantFrom(...NICS),
  isUp: bool,
  mtu: fc.constantFrom(1400, 1500, 9000),
  master: options(fc.constantFrom("red", "blue")),
});

const uniqueBy = <T>(items: fc.Arbitrary<T>, key: (item: T) => string, maxLength: number): fc.Arbitrary<T[]> =>
  fc.uniqueArray(items, { selector: key, maxLength });

const place = (links: readonly string[]) =>
  fc.record({ link: fc.constantFrom(...links), address: fc.constantFrom(...ADDRESSES), hasNoRoute: bool });

const route = (links: readonly string[]) =>
  fc
    .record({
      table: fc.constantFrom(254, 1000),
      kind: fc.constantFrom("unicast", "unicast", "unreachable"),
      destination: fc.constantFrom(...DESTINATIONS),
      via: fc.constantFrom(...GATEWAYS),
      link: fc.constantFrom(...links),
      metric: fc.constantFrom(0, 10),
    })
    .map(({ kind, via, link, ...rest }): NetworkTarget["routes"][number] => {
      if (kind !== "unicast") return { ...rest, kind: "unreachable", scope: "global", isOnLink: false };
      return via === undefined
        ? { ...rest, kind: "unicast", link, scope: "link", isOnLink: false }
        : { ...rest, kind: "unicast", link, via, scope: "global", isOnLink: true };
    });
const slotOf = ({ table, destination, metric }: { table: number; destination: string; metric: number }): string =>
  `${table} ${destination} ${metric}`;

const rule = (links: readonly string[]) =>
  fc
    .record({
      priority: fc.constantFrom(5180, 5190),
      table: fc.constantFrom(1000, 1001),
      by: fc.constantFrom("from", "in", "out", "mark"),
      link: fc.constantFrom(...links),
      mark: fc.constantFrom(1, 2),
    })
    .map(({ priority, table, by, link, mark }) => ({
      priority,
      table,
      ...(by === "from" ? { from: "192.0.2.1/32" } : {}),
      ...(by === "in" ? { inLink: link } : {}),
      ...(by === "out" ? { outLink: link } : {}),
      ...(by === "mark" ? { mark, mask: 15 } : {}),
    }));

const sysctls = fc
  .uniqueArray(fc.constantFrom(...SYSCTLS), { maxLength: 2 })
  .chain((names) => fc.tuple(...names.map((name) => fc.tuple(fc.constant(name), fc.constantFrom("0", "1")))))
  .map((pairs) => new Map(pairs));

const nameServers = options(fc.constantFrom(["192.0.2.53"], ["192.0.2.53", "192.0.2.54"]));
const texts = options(fc.constantFrom("table inet holdfast {\n}\n", "table inet holdfast {\n chain a {\n }\n}\n"));

/** Possible targets, all valid on a machine with all NICs. */
export const networkTargets: fc.Arbitrary<NetworkTarget> = fc
  .record({
    nics: uniqueBy(nic, ({ name }) => name, 3),
    vlans: uniqueBy(vlan, ({ name }) => name, 2),
    vrfs: uniqueBy(vrf, ({ name }) => name, 2),
  })
  .chain(({ nics, vlans, vrfs }) => {
    const masters = new Set(vrfs.map(({ name }) => name));
    const links: LinkTarget[] = [
      ...nics.map(({ master, ...link }) => (master === undefined || !masters.has(master) ? link : { ...link, master })),
      ...vlans.map((link) => ({ ...link, kind: "vlan" as const })),
      ...vrfs.map((link) => ({ ...link, kind: "vrf" as const })),
    ];
    const names = [...NICS, ...vlans.map(({ name }) => name)];
    return fc.record(
      {
        links: fc.constant(links),
        addresses: uniqueBy(place(names), ({ link, address }) => `${link} ${address}`, 5),
        routes: uniqueBy(route(names), slotOf, 6),
        rules: uniqueBy(rule(names), (one) => JSON.stringify(one), 4),
        firewall: texts,
        sysctls,
        dhcp: fc.uniqueArray(fc.constantFrom(...NICS), { maxLength: 1 }).map((list) => new Set(list)),
        nameServers,
      },
      { noNullPrototype: true },
    );
  })
  .map(({ firewall, nameServers, ...rest }) => ({
    ...rest,
    ...(firewall === undefined ? {} : { firewall }),
    ...(nameServers === undefined ? {} : { nameServers }),
  }));

/** Possible states: entries of ours and of others, with routes only on links that are up and have an address. */
export const networkStates: fc.Arbitrary<NetworkState> = fc
  .record({
    ups: fc.array(bool, { minLength: 3, maxLength: 3 }),
    vlans: uniqueBy(fc.record({ link: vlan, isOurs: bool }), ({ link }) => link.name, 2),
    vrfs: uniqueBy(vrf, ({ name }) => name, 1),
    promotes: fc.array(bool, { minLength: 3, maxLength: 3 }),
  })
  .chain(({ ups, vlans, vrfs, promotes }) => {
    const links: LinkState[] = [
      ...NICS.map((name, index) => aLink(name, { isUp: ups[index] ?? true })),
      ...vlans.map(({ link, isOurs }) => aLink(link.name, { ...link, kind: "vlan", isOurs })),
      ...vrfs.map((link) => aLink(link.name, { ...link, kind: "vrf", isOurs: true })),
    ];
    const names = links.filter(({ kind }) => kind !== "vrf").map(({ name }) => name);
    const own = <T>(value: fc.Arbitrary<T>) => fc.record({ value, isOurs: bool });
    return fc
      .record({
        addresses: uniqueBy(
          own(fc.record({ place: place(names), isDynamic: bool })),
          ({ value: { place } }) => `${place.link} ${place.address}`,
          6,
        ),
        routes: uniqueBy(own(route(names)), (one) => JSON.stringify(one), 8),
        rules: uniqueBy(own(rule(names)), ({ value }) => JSON.stringify(value), 4),
        firewall: texts,
        isAltered: bool,
        values: fc.array(fc.constantFrom("0", "1"), { minLength: 2, maxLength: 2 }),
        dhcp: fc.uniqueArray(fc.constantFrom(...NICS), { maxLength: 1 }),
        nameServers,
      })
      .map((found): NetworkState => {
        const addresses = found.addresses.map(({ value: { place, isDynamic }, isOurs }) => {
          const { hasNoRoute, ...address } = place;
          return { ...address, isOurs, isDynamic: isDynamic && !isOurs, ...(hasNoRoute ? { hasNoRoute } : {}) };
        });
        const inhabited = new Set(addresses.map(({ link }) => link));
        const up = new Set(links.filter(({ isUp }) => isUp).map(({ name }) => name));
        return {
          links,
          addresses,
          routes: found.routes.flatMap(({ value, isOurs }) => {
            const isPossible = value.link === undefined || (up.has(value.link) && inhabited.has(value.link));
            return isPossible ? [{ ...value, protocol: isOurs ? OUR_PROTOCOL : 4 }] : [];
          }),
          rules: found.rules.map(({ value, isOurs }) => ({ ...value, protocol: isOurs ? OUR_PROTOCOL : 0 })),
          ...(found.firewall === undefined
            ? {}
            : {
                firewall: { digest: found.isAltered ? "" : firewallDigest(found.firewall), text: found.firewall },
              }),
          sysctls: new Map([
            ...SYSCTLS.map((name, index) => [name, found.values[index] ?? "0"] as const),
            ...names.map(
              (name, index) => [linkSysctl(name, "promote_secondaries"), promotes[index] === true ? "1" : "0"] as const,
            ),
          ]),
          dhcp: new Set(found.dhcp),
          ...(found.nameServers === undefined ? {} : { nameServers: found.nameServers }),
        };
      });
  });
