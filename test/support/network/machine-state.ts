import { execFileSync } from "node:child_process";

/** Links, addresses, routes and rules of a network namespace, each as sorted lines, without what changes by itself. */
export interface PathState {
  readonly links: readonly string[];
  readonly addresses: readonly string[];
  readonly routes: readonly string[];
  readonly rules: readonly string[];
}

/** All settings of a network namespace. */
export interface MachineState extends PathState {
  readonly nftables: readonly string[];
  readonly sysctls: readonly string[];
}

const PARTS = ["links", "addresses", "routes", "rules", "nftables", "sysctls"] as const;
const SHOW_PATHS = ["link show", "address show", "route show table all", "rule show"];
// Some kernel files are unreadable, which grep reports by its status.
const READ_OTHERS =
  "nft -s list ruleset && printf '\\n\\036' && { grep -r . /proc/sys/net/ipv4 /proc/sys/net/netfilter 2>/dev/null || true; }";
/** Counters, or random values of the kernel. */
const LIVELY = /\/(?:nf_conntrack_count|tcp_fastopen_key|tcp_available_|nf_log\/)/;

type Fields = Readonly<Record<string, unknown>>;

/** Reads links, addresses, routes and rules, at a small part of the cost of all; `within` is a command prefix that enters the namespace. */
export function pathState(within: readonly string[]): PathState {
  const command = [...within, "ip", "-4", "-json", "-details", "-batch", "-"];
  const [links = "", addresses = "", routes = "", rules = ""] = read(command, `${SHOW_PATHS.join("\n")}\n`).split("\n");
  return {
    links: listOf(links).map(linkLine).sort(),
    addresses: listOf(addresses).flatMap(addressLines).sort(),
    routes: routeLines(listOf(routes)),
    rules: listOf(rules)
      .map((rule) => lineOf(rule))
      .sort(),
  };
}

/** Reads all settings. */
export function machineState(within: readonly string[]): MachineState {
  const paths = pathState(within);
  const [nftables = "", sysctls = ""] = read([...within, "sh", "-c", READ_OTHERS]).split("\u001E");
  return {
    ...paths,
    nftables: nftables.split("\n").filter((line) => line !== ""),
    sysctls: sysctls
      .split("\n")
      .filter((line) => line !== "" && !LIVELY.test(line))
      .sort(),
  };
}

function read(command: readonly string[], input = ""): string {
  const [file = "", ...args] = command;
  return execFileSync(file, args, { encoding: "utf8", input, maxBuffer: 1 << 28 });
}

/** Returns the differences of the parts that were read, `-` or `+` before each line; empty when both are equal. */
export function differences(before: MachineState, after: PathState & Partial<MachineState>): readonly string[] {
  return PARTS.flatMap((part) => {
    const [then, now] = [before[part], after[part] ?? before[part]];
    if (then.join("\n") === now.join("\n")) return [];
    const lines = [...without(then, now).map((line) => `- ${line}`), ...without(now, then).map((line) => `+ ${line}`)];
    return lines.length === 0 ? [`${part}: another order`] : lines.map((line) => `${part}: ${line}`);
  });
}

/** Returns the lines of the first that the second lacks, with repetitions. */
function without(lines: readonly string[], others: readonly string[]): readonly string[] {
  const left = new Map<string, number>();
  for (const line of others) left.set(line, (left.get(line) ?? 0) + 1);
  return lines.filter((line) => {
    const count = left.get(line) ?? 0;
    left.set(line, count - 1);
    return count <= 0;
  });
}

function listOf(text: string): readonly Fields[] {
  const parsed: unknown = text === "" ? [] : JSON.parse(text);
  return (parsed as readonly Fields[]).filter((fields) => Object.keys(fields).length > 0);
}

function linkLine(link: Fields): string {
  const flags = (link["flags"] as readonly string[]).filter((flag) => flag === "UP" || flag === "NOARP");
  const { linkinfo, altnames } = link as { linkinfo?: Fields; altnames?: readonly string[] };
  const { info_kind: kind, info_slave_kind: slave } = linkinfo ?? {};
  const data = kind === "vlan" || kind === "vrf" ? linkinfo?.["info_data"] : undefined;
  const { ifname, mtu, address, master } = link;
  const parent = kind === "vlan" ? link["link"] : undefined;
  return lineOf({ ifname, mtu, address, master, parent, kind, slave, data, flags, altnames: altnames?.toSorted() });
}

function addressLines(link: Fields): readonly string[] {
  const list = (link["addr_info"] ?? []) as readonly Fields[];
  return list.map(({ local, prefixlen, address, broadcast, scope, label, dynamic }) =>
    lineOf({ ifname: link["ifname"], local, prefixlen, address, broadcast, scope, label, dynamic }),
  );
}

/** The kernel uses the first of several routes with one key, so their order belongs to the state. */
function routeLines(routes: readonly Fields[]): readonly string[] {
  const counts = new Map<string, number>();
  return routes
    .map(({ flags, ...route }) => {
      const key = lineOf({ table: route["table"], dst: route["dst"], metric: route["metric"], type: route["type"] });
      const place = counts.get(key) ?? 0;
      counts.set(key, place + 1);
      // Carriers change.
      const lasting = ((flags ?? []) as readonly string[]).filter((flag) => flag !== "linkdown" && flag !== "dead");
      return lineOf({ ...route, flags: lasting, ...(place === 0 ? {} : { place }) });
    })
    .sort();
}

function lineOf(fields: Fields): string {
  return Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(" ");
}
