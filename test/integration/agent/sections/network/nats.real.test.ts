import { expect, test } from "vitest";
import { EMPTY_RECORD } from "../../../../../src/host/network/state/record.ts";
import { networkMachine } from "../../../../support/network/network-machine.ts";
import { converge, sectionOver } from "../../../../support/network/real-network.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

/** A router with a host behind it; everything forwarded leaves by `wan0`. */
const MACHINE = `
ip netns add h0
ip link add lan0 type veth peer name eth0 netns h0
ip link set lan0 up; ip address add 10.0.0.1/24 dev lan0
ip -n h0 link set eth0 up
for n in 9 10; do ip -n h0 address add 10.0.0.$n/24 dev eth0; done
ip -n h0 route add default via 10.0.0.1
ip link add wan0 type veth peer name far0
ip link set far0 up; ip link set wan0 up; ip address add 10.1.0.1/16 dev wan0
ip neighbour add 10.1.0.254 dev wan0 lladdr 02:00:00:00:00:01 nud permanent
ip route add default via 10.1.0.254 dev wan0`;

const orders = <T>(items: readonly T[]): readonly (readonly T[])[] =>
  items.length < 2
    ? [items]
    : items.flatMap((item) => orders(items.filter((one) => one !== item)).map((rest) => [item].concat(rest)));

/** A packet after a matching translation. */
interface Overlapping {
  readonly nat: object;
  readonly of: (source: string, dest: string) => string | undefined;
}

const within = (address: string, block: string): boolean => address.startsWith(block);

const SOURCES: readonly Overlapping[] = [
  {
    nat: { source: "10.0.0.9/32", dest: "198.51.100.0/24", toSource: "172.16.1.1/32" },
    of: (source, dest) => (source === "10.0.0.9" && within(dest, "198.51.100.") ? "172.16.1.1" : undefined),
  },
  {
    nat: { source: "10.0.0.0/24", toSource: "172.16.2.0/24" },
    of: (source) => source.replace("10.0.0.", "172.16.2."),
  },
  {
    nat: { dest: "198.51.0.0/16", masquerade: true },
    of: (_, dest) => (within(dest, "198.51.") ? "10.1.0.1" : undefined),
  },
];

const DESTINATIONS: readonly Overlapping[] = [
  {
    nat: { dest: "198.51.100.7/32", toDest: "172.16.1.1/32" },
    of: (_, dest) => (dest === "198.51.100.7" ? "172.16.1.1" : undefined),
  },
  {
    nat: { source: "10.0.0.9/32", dest: "198.51.100.0/24", toDest: "172.16.2.0/24" },
    of: (source, dest) =>
      source === "10.0.0.9" && within(dest, "198.51.100.") ? dest.replace("198.51.100.", "172.16.2.") : undefined,
  },
  {
    nat: { dest: "198.51.0.0/16", toDest: "172.18.0.0/16" },
    of: (_, dest) => (within(dest, "198.51.") ? dest.replace("198.51.", "172.18.") : undefined),
  },
];

const FLOWS = ["10.0.0.9", "10.0.0.10"].flatMap((source) =>
  ["198.51.100.7", "198.51.100.8", "198.51.7.7", "203.0.113.7"].map((dest) => [source, dest] as const),
);

test.each([
  ["sources", SOURCES, "dst"],
  ["destinations", DESTINATIONS, "src"],
] as const)(
  "of three overlapping translations of %s the first of the document matches, in every order",
  async (_of, overlapping, end) => {
    const machine = await networkMachine(tempDir(), {}, MACHINE);
    const section = sectionOver(machine, { record: EMPTY_RECORD });
    const interfaces = [
      { nic: "lan0", ip: "10.0.0.1/24" },
      { nic: "wan0", ip: "10.1.0.1/16" },
    ];
    for (const order of orders(overlapping)) {
      await converge(section, { interfaces, forwarding: true, nats: order.map(({ nat }) => nat) });
      const pings = FLOWS.map(([source, dest]) => `ip netns exec h0 ping -c 1 -W 1 -I ${source} ${dest} &`);
      const tracked = machine.sh(
        `conntrack -F 2>/dev/null; { ${pings.join("\n")} wait; } >/dev/null; conntrack -L -p icmp 2>/dev/null`,
      );
      // The replies are expected from the packet's target, at its source address.
      const seen = tracked.split("\n").flatMap((line) => {
        const ends = [...line.matchAll(/(?:src|dst)=(\S+)/g)].map(([, address = ""]) => address);
        const [source = "", dest = "", from = "", to = ""] = ends;
        return ends.length < 4 ? [] : [`${source} ${dest}: ${end === "dst" ? to : from}`];
      });
      const wanted = FLOWS.map(([source, dest]) => {
        const made = order.map((one) => one.of(source, dest)).find((address) => address !== undefined);
        return `${source} ${dest}: ${made ?? (end === "dst" ? source : dest)}`;
      });
      expect(seen.toSorted()).toEqual(wanted.toSorted());
    }
  },
);
