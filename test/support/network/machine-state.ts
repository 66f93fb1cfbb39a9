import { execFileSync } from "node:child_process";

/** The settings of a network namespace, each part as sorted lines, without what changes by itself. */
export interface MachineState {
  readonly links: readonly string[];
  readonly addresses: readonly string[];
  readonly routes: readonly string[];
  readonly rules: readonly string[];
  readonly nftables: readonly string[];
  readonly sysctls: readonly string[];
}

const PARTS = ["links", "addresses", "routes", "rules", "nftables", "sysctls"] as const;
const READ = [
  "ip -json -details link show",
  "ip -json -4 address show",
  "ip -json -4 route show table all",
  "ip -json -4 rule show",
  "nft -s list ruleset",
  // Some kernel files are unreadable, which grep reports by its status.
  "grep -r . /proc/sys/net/ipv4 /proc/sys/net/netfilter 2>/dev/null || true",
].join(" && printf '\\n\\036' && ");
/** Counters, or random values of the kernel. */
const LIVELY = /\/(?:nf_conntrack_count|tcp_fastopen_key|tcp_available_|nf_log\/)/;

type Fields = Readonly<Record<string, unknown>>;

/** Reads the state; `within` is a command prefix that enters the namespace. */
export function machineState(within: readonly string[]): MachineState {
  const [file, ...args] = [...within, "sh", "-c", READ];
  const text = execFileSync(file ?? "", args, { encoding: "utf8", maxBuffer: 1 << 28 });
  const [links = "", addresses = "", routes = "", rules = "", nftables = "", sysctls = ""] = text
    .split("\u001E")
    .map((part) => part.trim());
  return {
    links: listOf(links).map(linkLine).sort(),
    addresses: listOf(addresses).flatMap(addressLines).sort(),
    routes: routeLines(listOf(routes)),
    rules: listOf(rules)
      .map((rule) => lineOf(rule))
      .sort(),
    nftables: nftables.split("\n").filter((line) => line !== ""),
    sysctls: sysctls
      .split("\n")
      .filter((line) => line !== "" && !LIVELY.test(line))
      .sort(),
  };
}

/** Returns the differences, `-` or `+` before each line; empty when both are equal. */
export function differences(before: MachineState, after: MachineState): readonly string[] {
  return PARTS.flatMap((part) => {
    const [then, now] = [before[part], after[part]];
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
