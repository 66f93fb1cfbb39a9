import type { PortMapping } from "../../../protocol/sections/exec/config.ts";

/** A port of an interface and the container that it maps to. */
export interface MappedPort extends PortMapping {
  readonly address: string;
}

/** Runs before the engine's own translations and those of the table `inet holdfast`. */
const PRIORITY = -102;

/**
 * Writes the table `inet holdfast_containers`; undefined if no port is mapped. Packets to this machine are redirected by interface, for any
 * of its addresses; packets that the machine itself sends, by the interface's addresses.
 */
export function exposureTable(
  ports: readonly MappedPort[],
  addresses: ReadonlyMap<string, readonly string[]>,
): string | undefined {
  if (ports.length === 0) return undefined;
  const to = ({ address, containerPort }: MappedPort): string => `${address} . ${containerPort}`;
  const incoming = ports.map((port) => `"${port.iface}" . ${port.protocol} . ${port.hostPort} : ${to(port)}`);
  const own = ports.flatMap((port) =>
    (addresses.get(port.iface) ?? []).map(
      (address) => [`${address} . ${port.protocol} . ${port.hostPort}`, to(port)] as const,
    ),
  );
  return [
    "table inet holdfast_containers {",
    ...mapOf("by_interface", "ifname", incoming),
    ...chainOf("incoming", "prerouting", "fib daddr type local", "iifname", "by_interface"),
    ...(own.length === 0
      ? []
      : [
          // Two interfaces may have the same address.
          ...mapOf(
            "by_address",
            "ipv4_addr",
            [...new Map(own.toReversed())].map(([key, value]) => `${key} : ${value}`).toSorted(),
          ),
          ...chainOf("from_here", "output", "", "ip daddr", "by_address"),
        ]),
    "}",
    "",
  ].join("\n");
}

function mapOf(name: string, key: string, elements: readonly string[]): readonly string[] {
  return [
    `map ${name} {`,
    `type ${key} . inet_proto . inet_service : ipv4_addr . inet_service`,
    `elements = {\n${elements.toSorted().join(",\n")}\n}`,
    "}",
  ];
}

function chainOf(name: string, hook: string, match: string, key: string, map: string): readonly string[] {
  return [
    `chain ${name} {`,
    `type nat hook ${hook} priority ${PRIORITY}; policy accept;`,
    `${match} dnat ip to ${key} . meta l4proto . th dport map @${map}`.trim(),
    "}",
  ];
}
