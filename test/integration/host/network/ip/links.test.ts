import { execFileSync } from "node:child_process";
import * as fc from "fast-check";
import { expect, test } from "vitest";
import {
  address6,
  defaultRoute,
  netmaskOf,
  parseRoutes,
  parseRoutes6,
  parseLocalAddresses,
  readAddresses,
  readAddresses4,
  readLink,
  readLinks,
} from "../../../../../src/host/network/ip/links.ts";
import { hostReader } from "../../../../../src/host/reader.ts";
import { linkFiles, machineRoot } from "../../../../support/machine/machine-root.ts";
import { ROUTES, ROUTES6 } from "../../../../support/machine/proc-texts.ts";
import { anyText } from "../../../../support/any-text.ts";

test("a physical link with all fields", () => {
  const { reader } = machineRoot({
    ...linkFiles("ens160", { address: "00:50:56:AB:cd:ef", speed: "10000", duplex: "full", ifindex: "3" }),
    "/sys/class/net/ens160/device/vendor": "0x15ad",
    "/sys/class/net/ens160/uevent": "INTERFACE=ens160\nIFINDEX=3\n",
  });
  expect(readLink(reader, "ens160")).toEqual({
    name: "ens160",
    index: 3,
    mac: "00:50:56:ab:cd:ef",
    mtu: 1500,
    speedMbps: 10_000,
    duplex: "full",
    operState: "up",
    hasCarrier: true,
    isEnabled: true,
    isLoopback: false,
    isPhysical: true,
    kind: undefined,
  });
});

test("a missing property of a link is undefined: speed -1, unknown duplex, no carrier file, no hardware address", () => {
  const { reader } = machineRoot({
    ...linkFiles("ens160.100", {
      speed: "-1",
      duplex: "unknown",
      address: "00:00:00:00:00:00",
      carrier: "",
      flags: "0x82",
    }),
    "/sys/class/net/ens160.100/uevent": "DEVTYPE=vlan\n",
  });
  expect(readLink(reader, "ens160.100")).toMatchObject({
    speedMbps: undefined,
    duplex: undefined,
    mac: undefined,
    hasCarrier: undefined,
    isEnabled: false,
    isPhysical: false,
    kind: "vlan",
  });
});

test("files that are not links are ignored", () => {
  const { reader } = machineRoot({ ...linkFiles("eth0", {}), "/sys/class/net/bonding_masters": "" });
  expect(readLinks(reader).map(({ name }) => name)).toEqual(["eth0"]);
  expect(readLink(reader, "gone")).toBeUndefined();
  expect(readLinks(machineRoot({}).reader)).toEqual([]);
});

test("the links and MTUs of this machine equal those of ip", () => {
  const listed = JSON.parse(execFileSync("ip", ["-j", "link"], { encoding: "utf8" })) as {
    ifname: string;
    mtu: number;
  }[];
  const links = readLinks(hostReader());
  expect(links.map(({ name, mtu }) => `${name} ${mtu}`).sort()).toEqual(
    listed.map((link) => `${link.ifname} ${link.mtu}`).sort(),
  );
});

test("addresses of this machine with their prefixes", () => {
  const listed = JSON.parse(execFileSync("ip", ["-j", "-4", "addr"], { encoding: "utf8" })) as {
    ifname: string;
    operstate: string;
    addr_info: { local: string; prefixlen: number }[];
  }[];
  const expected = listed.flatMap(({ ifname, addr_info }) =>
    addr_info.map(({ local, prefixlen }) => `${ifname} ${local}/${prefixlen}`),
  );
  const seen = readAddresses().flatMap(({ link, family, address, prefix }) =>
    family === 4 ? [`${link} ${address}/${prefix}`] : [],
  );
  expect(seen.sort()).toEqual(expected.sort());
});

test("routes: usable ones only, and the default with the lowest metric", () => {
  const routes = parseRoutes(ROUTES);
  expect(routes).toEqual([
    { link: "eth0", family: 4, destination: "0.0.0.0", prefix: 0, gateway: "192.0.2.1", metric: 100 },
    { link: "wlan0", family: 4, destination: "0.0.0.0", prefix: 0, gateway: "192.168.1.1", metric: 600 },
    { link: "eth0", family: 4, destination: "192.0.2.0", prefix: 24, gateway: undefined, metric: 100 },
  ]);
  expect(defaultRoute(routes, 4)?.link).toBe("eth0");
  expect(defaultRoute(routes, 6)).toBeUndefined();
});

test("IPv6 routes and addresses", () => {
  expect(parseRoutes6(ROUTES6)).toEqual([
    { link: "eth0", family: 6, destination: "fd00::", prefix: 64, gateway: undefined, metric: 256 },
    { link: "eth0", family: 6, destination: "::", prefix: 0, gateway: "fd00::1", metric: 1024 },
  ]);
  expect(address6("0".repeat(32))).toBe("::");
  expect(address6("xyz")).toBeUndefined();
});

test("masks", () => {
  expect([0, 1, 8, 20, 24, 31, 32].map(netmaskOf)).toEqual([
    "0.0.0.0",
    "128.0.0.0",
    "255.0.0.0",
    "255.255.240.0",
    "255.255.255.0",
    "255.255.255.254",
    "255.255.255.255",
  ]);
});

test("the route parsers never throw", () => {
  const text = fc.oneof(
    anyText(),
    fc
      .tuple(fc.constantFrom(ROUTES, ROUTES6), fc.nat(500), fc.nat(30), fc.string({ maxLength: 12 }))
      .map(([base, at, length, patch]) => base.slice(0, at) + patch + base.slice(at + length)),
  );
  fc.assert(
    fc.property(text, (damaged) => {
      for (const { prefix, family } of [...parseRoutes(damaged), ...parseRoutes6(damaged)]) {
        expect(prefix).toBeLessThanOrEqual(family === 4 ? 32 : 128);
      }
    }),
  );
});

const FIB_TRIE = `Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.0
              /8 host LOCAL
           |-- 127.0.0.1
              /32 host LOCAL
        |-- 127.255.255.255
           /32 link BROADCAST
        +-- 192.0.2.0/28 2 0 2
           |-- 192.0.2.0
              /24 link UNICAST
           |-- 192.0.2.9
              /32 host LOCAL
           |-- 192.0.2.1
              /32 host LOCAL
     |-- 203.0.113.5
        /32 host LOCAL
     |-- 198.51.100.7
        /32 host LOCAL
Local:
     |-- 192.0.2.1
        /32 host LOCAL
`;
const head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";

test("distinguishes own addresses from networks and broadcasts, each once", () => {
  expect(parseLocalAddresses(FIB_TRIE)).toEqual(["127.0.0.1", "192.0.2.9", "192.0.2.1", "203.0.113.5", "198.51.100.7"]);
  for (const text of ["", "nonsense", "/32 host LOCAL", "   /32 host LOCAL"])
    expect(parseLocalAddresses(text)).toEqual([]);
});

test("a link that is up without a carrier keeps its addresses, and no other gets one of another", () => {
  const running = [
    { link: "lo", family: 4, address: "127.0.0.1", prefix: 8 },
    { link: "lo", family: 6, address: "::1", prefix: 128 },
    { link: "eth1", family: 4, address: "198.51.100.7", prefix: 24 },
  ] as const;
  const route = (link: string, destination: string, gateway: string, mask: string): string =>
    `${link}\t${destination}\t${gateway}\t0001\t0\t0\t0\t${mask}\t0\t0\t0\n`;
  const read = (routes: string): unknown => {
    const { reader } = machineRoot({ "/proc/net/route": head + routes, "/proc/net/fib_trie": FIB_TRIE });
    return readAddresses4(reader, running).map(({ link, address, prefix }) => `${link} ${address}/${prefix}`);
  };
  const own = ["lo 127.0.0.1/8", "eth1 198.51.100.7/24"];
  const silent = route("eth0", "000200C0", "00000000", "00FFFFFF");
  expect(read(silent)).toEqual([...own, "eth0 192.0.2.9/24", "eth0 192.0.2.1/24"]);
  expect(read(silent + route("eth2", "000200C0", "00000000", "F8FFFFFF"))).toEqual([
    ...own,
    "eth0 192.0.2.9/24",
    "eth2 192.0.2.1/29",
  ]);
  // A route through a gateway, a default route, and one of another link say nothing.
  expect(read(route("eth0", "000200C0", "010200C0", "00FFFFFF"))).toEqual(own);
  expect(read(route("ppp0", "00000000", "00000000", "00000000"))).toEqual(own);
  expect(read(route("eth1", "000200C0", "00000000", "00FFFFFF"))).toEqual(own);
  expect(readAddresses4(machineRoot({}).reader, running).length).toBe(2);
});
