import { createHash } from "node:crypto";
import type { ExposureState, VirtualLink } from "../../../host/exposure/driver.ts";
import type { Listener } from "../../../host/network/ip/listeners.ts";
import type { Issue } from "../../../protocol/documents/reconcile.ts";
import type { ContainerSpec, PortMapping, VirtualInterface } from "../../../protocol/sections/exec/config.ts";

/** A definition whose container has mapped ports or routes of its own. */
export interface Placed {
  readonly spec: ContainerSpec;
  /** Address on the container network. */
  readonly address: string;
  /** The engine's id of the running container. */
  readonly engineId: string | undefined;
}

/** The other inputs that decide how containers are reached. */
export interface ExposureSeen {
  readonly state: ExposureState;
  /** Name of the container bridge. */
  readonly bridge: string;
  /** True if another program deleted the bridge. */
  readonly isBridgeGone?: boolean;
  readonly subnet: string;
  /** This machine's IPv4 addresses by link. */
  readonly addresses: ReadonlyMap<string, readonly string[]>;
  /** Lists other programs' listeners; read only for a new mapping. */
  readonly listeners: () => readonly Listener[];
  /** Routing tables of the existing VRFs. */
  readonly vrfs: ReadonlyMap<string, number>;
}

export interface ExposureTarget {
  /** Text of the nftables table; undefined for none. */
  readonly table: string | undefined;
  /** Rules that the engine's own filter must accept. */
  readonly userRules: readonly string[];
  readonly ports: readonly MappedPort[];
  readonly rules: readonly string[];
  readonly routes: readonly string[];
  readonly links: readonly VirtualLink[];
  /** Settings that cannot be applied as written. */
  readonly waits: readonly Issue[];
}

/** Priorities of ip-rule(8); 5100–5179 are ours for containers. */
const FROM = 5110;
const END = 5111;
const IN_LINK = 5150;
/** Tables of interfaces that are handed over; far from those of VRFs, which count from 1000. */
const FIRST_TABLE = 0x0db0_0000;
const VIRTUAL_RULE = "-o hfc+";

/** Computes how containers are reached and which table routes what they send. Pure. */
export function compileExposure(placed: readonly Placed[], seen: ExposureSeen): ExposureTarget {
  const inOrder = placed.toSorted((one, other) => (one.spec.id < other.spec.id ? -1 : 1));
  const { ports, waits } = mappedPorts(inOrder, seen);
  const links = inOrder.flatMap((one) => handedOver(one, seen));
  const there = new Set(seen.state.links);
  const routed = inOrder.filter(({ spec }) => spec.vrf !== undefined);
  const tables = routed.flatMap(({ spec }) => seen.vrfs.get(spec.vrf ?? "") ?? []);
  return {
    table: exposureTable(ports, seen.addresses),
    userRules: [
      ...(ports.length === 0 ? [] : [`-o ${seen.bridge} -m conntrack --ctstate DNAT`]),
      ...(links.length === 0 ? [] : [VIRTUAL_RULE]),
    ],
    ports,
    rules: [
      ...routed.flatMap(({ spec, address }) => vrfRules(address, seen.vrfs.get(spec.vrf ?? ""))),
      ...links.map(({ iface, table }) => `priority ${IN_LINK} iif ${iface} lookup ${table}`),
    ],
    routes: [
      // The bridge exists only once there is a network.
      ...(seen.addresses.has(seen.bridge)
        ? [...new Set(tables)].map((table) => `${seen.subnet} dev ${seen.bridge} scope link table ${table}`)
        : []),
      ...links.flatMap(({ virtual }) => (there.has(virtual.link) ? [virtual.route] : [])),
    ],
    links: links.map(({ virtual }) => virtual),
    waits: [...waits, ...inOrder.flatMap((one) => otherWaits(one, seen))],
  };
}

/** Returns why a container must not start: its VRF is missing, or its address is invalid or in use. Pure. */
export function placeObstacle(
  spec: ContainerSpec,
  others: readonly Pick<ContainerSpec, "id" | "name" | "ip">[],
  { reserved, isInside }: { readonly reserved: ReadonlySet<string>; readonly isInside: (ip: string) => boolean },
  vrfs: ReadonlyMap<string, number> | undefined,
): string | undefined {
  const { ip, vrf } = spec;
  if (ip !== undefined) {
    if (!isInside(ip)) return `its address ${ip} is not a container address of this node's bridge`;
    if (reserved.has(ip)) return `its address ${ip} is reserved for the node itself`;
    const first = others.find((other) => other.ip === ip && other.id < spec.id);
    if (first !== undefined) return `its address ${ip} is used by ${first.name}`;
  }
  if (vrf === undefined || vrfs?.has(vrf) !== false) return undefined;
  return `the VRF ${vrf} is not set up on this node`;
}

/** Identifies an applied mapping. */
export function mappingName({ protocol, iface, hostPort, address, containerPort }: MappedPort): string {
  return `${keyOf({ protocol, iface, hostPort })} ${address}:${containerPort}`;
}

const keyOf = ({ protocol, iface, hostPort }: Pick<PortMapping, "protocol" | "iface" | "hostPort">): string =>
  `${iface} ${protocol} ${hostPort}`;

/** Assigns each port to the first container, by id, that asks for it. */
function mappedPorts(
  placed: readonly Placed[],
  seen: ExposureSeen,
): { readonly ports: readonly MappedPort[]; readonly waits: readonly Issue[] } {
  const taken = new Map<string, string>();
  // An applied mapping stays: a program that started to listen later has never received packets at this port.
  const inForce = new Set(seen.state.mapped.map((name) => name.split(" ").slice(0, 3).join(" ")));
  const ports: MappedPort[] = [];
  const waits: Issue[] = [];
  // The engine publishes ports itself.
  if (seen.state.unusable !== undefined) return { ports, waits };
  for (const { spec, address } of placed) {
    const wait = (code: string, text: string): number => waits.push(issueOf(spec, "portMappings", code, text));
    for (const mapping of spec.portMappings) {
      const { iface, protocol, hostPort } = mapping;
      const key = keyOf(mapping);
      const what = `${protocol} port ${hostPort} on ${iface}`;
      const holder = taken.get(key);
      if (holder !== undefined) {
        wait("port-taken", `${what} is mapped to ${holder}`);
        continue;
      }
      if (iface === "lo") {
        wait("unsupported", `${what}: ports of the loopback are not mapped`);
        continue;
      }
      const own = seen.addresses.get(iface) ?? [];
      if (own.length === 0) wait("no-address", `${what}: ${iface} has no address`);
      if (!inForce.has(key) && seen.listeners().some((one) => isTaking(one, mapping, own))) {
        wait("port-taken", `${what} is in use by a program of this machine`);
        continue;
      }
      taken.set(key, spec.name);
      ports.push({ ...mapping, address });
    }
  }
  return { ports, waits };
}

function isTaking({ protocol, address, port }: Listener, mapping: PortMapping, own: readonly string[]): boolean {
  if (protocol !== mapping.protocol || port !== mapping.hostPort) return false;
  return address === undefined || own.includes(address);
}

/** Rules that look packets from the container up in its table, and in no other. */
function vrfRules(address: string, table: number | undefined): readonly string[] {
  const end = `priority ${END} from ${address} unreachable`;
  return table === undefined ? [end] : [`priority ${FROM} from ${address} lookup ${table}`, end];
}

interface Handed {
  readonly iface: string;
  readonly table: number;
  readonly virtual: VirtualLink;
}

function handedOver({ spec, address, engineId }: Placed, { state, addresses }: ExposureSeen): readonly Handed[] {
  if (engineId === undefined || state.closed !== undefined) return [];
  return spec.interfaces.flatMap((virtual, at) =>
    addresses.has(virtual.name) ? [handed(spec.id, engineId, address, virtual, at)] : [],
  );
}

function handed(id: string, engineId: string, own: string, { name, dest }: VirtualInterface, at: number): Handed {
  // Each container gets its own link name, so that an old link is not taken for a new one.
  const digest = createHash("sha256")
    .update(JSON.stringify([id, engineId, name, dest]))
    .digest("hex");
  const link = `hfc${digest.slice(0, 12)}`;
  const table = FIRST_TABLE + Number.parseInt(digest.slice(12, 17), 16);
  const address = "address" in dest ? dest.address : undefined;
  const inside = "link" in dest ? dest.link : `eth${at + 1}`;
  // A container answers on any of its links for any of its addresses.
  const route = `default via ${address ?? own} dev ${link} onlink table ${table}`;
  return { iface: name, table, virtual: { link, engineId, inside, address, route } };
}

function otherWaits({ spec, engineId }: Placed, { state, addresses }: ExposureSeen): readonly Issue[] {
  return [
    ...spec.virtualNetworks.map(({ network }) =>
      issueOf(spec, "virtualNetworks", "unsupported", `${network}: virtual networks are not supported`),
    ),
    ...(engineId === undefined ? [] : spec.interfaces).flatMap(({ name }) => {
      if (state.closed !== undefined) {
        return [issueOf(spec, "interfaces", "unsupported", `${name}: no link can be put into it: ${state.closed}`)];
      }
      return addresses.has(name) ? [] : [issueOf(spec, "interfaces", "no-address", `${name} has no address`)];
    }),
  ];
}

function issueOf({ path, name }: ContainerSpec, part: string, code: string, text: string): Issue {
  const at = `${path}.${part}`;
  return { path: at.slice(0, 512), code, message: `${at}: ${name}: ${text}`.slice(0, 1024) };
}

/** A port of an interface and the container that it maps to. */
interface MappedPort extends PortMapping {
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
