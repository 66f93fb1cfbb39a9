import type { Acl } from "../../../protocol/sections/network/config.ts";
import type { NetworkActual } from "./actual.ts";
import { addressesOf, type Context } from "./contexts.ts";
import { byContext, linkSet, matchText, nameIn, rejectLines, type Chain, MARK_MASK } from "./firewall-text.ts";

const ESTABLISHED = "ct state established,related accept";
const FORWARD_HOOK = "filter hook forward priority filter";

/** Prefixes of bridges of Docker, Podman and the node's own containers. */
const ENGINE_PREFIXES = ["docker", "br-", "podman", "cni-podman", "holdfast"] as const;
const ENGINE_LINK = /^(?:docker(?:\d+|_gwbridge)|br-[0-9a-f]{12}|(?:cni-)?podman\d+|holdfast\d+)$/;

/**
 * Filters forwarded packets: within a context its ACLs allow them, between contexts only rules. Interfaces outside the section belong to
 * the default context. Only bridges of container engines are exempt, since the engine filters them itself.
 */
export function forwardChains(contexts: readonly Context[], actual: NetworkActual): readonly Chain[] {
  const managed = contexts.flatMap((context) => context.members.map(({ link }) => link));
  const entering = contexts.flatMap((context) => entriesOf(context, actual));
  const chainOf = (context: Context): string => nameIn(context, "from");
  const fromElsewhere = contexts.filter(({ vrf }) => vrf === undefined).map((context) => `goto ${chainOf(context)}`);
  return [
    ...contexts.map((context) => ({ name: chainOf(context), lines: fromLines(context, contexts, actual) })),
    {
      name: "between",
      lines: [
        ...byContext("iifname", contexts, "goto", chainOf, (context) => entriesOf(context, actual)),
        ...fromElsewhere,
      ],
    },
    {
      name: "forward",
      hook: FORWARD_HOOK,
      lines: [
        ESTABLISHED,
        ...(managed.length === 0 ? [] : [`iifname ${linkSet(entering)} oifname ${linkSet(managed)} goto between`]),
        ...engineLines([...entering, ...actual.state.links.map(({ name }) => name)], new Set(entering)),
        // The section forwards IPv4 only.
        "meta nfproto ipv4 goto between",
      ],
    },
  ];
}

/** Kinds of links that other programs forward through: bridges of virtual machines and tunnels. */
const FOREIGN_KINDS = ["bridge", "tun", "wireguard", "gre", "ipip", "sit", "vti", "xfrm", "vxlan", "geneve", "ppp"];

/**
 * Drops packets between the section's interfaces if the section needs no routing and another program has enabled forwarding. Packets
 * between two links outside the section pass, as do those of container engines' bridges and other programs' bridges or tunnels. The chain
 * avoids connection tracking, since it would slow the whole machine down.
 */
export function heldChains(
  contexts: readonly Context[],
  left: readonly string[],
  actual: NetworkActual,
): readonly Chain[] {
  const links = [...new Set([...contexts.flatMap(({ members }) => members.map(({ link }) => link)), ...left])];
  if (links.length === 0) return [];
  const own = linkSet(links);
  const kinds = `{ ${FOREIGN_KINDS.map((kind) => `"${kind}"`).join(", ")} }`;
  const foreign = ["iif", "oif"].map((key) => `${key}name != ${own} meta ${key}kind ${kinds} accept`);
  return [
    {
      name: "forward",
      hook: FORWARD_HOOK,
      lines: [
        `iifname ${own} oifname ${own} drop`,
        ...engineLines([...links, ...actual.state.links.map(({ name }) => name)], new Set(links)),
        ...foreign,
        `iifname ${own} drop`,
        `oifname ${own} drop`,
      ],
    },
  ];
}

/** Clamps the MSS of forwarded TCP connections to the smaller MTU of both directions, so that they do not depend on ICMP. */
export const clampChain: Chain = {
  name: "clamp",
  hook: "filter hook forward priority mangle",
  lines: ["tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu"],
};

/** Accepts packets from or to a container; links that only look like an engine's are filtered like all others. */
function engineLines(links: readonly string[], managed: ReadonlySet<string>): readonly string[] {
  return ENGINE_PREFIXES.flatMap((prefix) => {
    const others = links.filter((name) => name.startsWith(prefix) && (managed.has(name) || !ENGINE_LINK.test(name)));
    const except = (key: string): string => (others.length === 0 ? "" : `${key} != ${linkSet([...new Set(others)])} `);
    return ["iifname", "oifname"].map((key) => `${except(key)}${key} "${prefix}*" accept`);
  });
}

/** Returns the interfaces by which packets enter a context: its members and the VRF device. */
function entriesOf({ vrf, members }: Context, { features }: NetworkActual): readonly string[] {
  const links = members.map(({ link }) => link);
  return vrf !== undefined && features.vrf ? [...links, vrf] : links;
}

function fromLines(context: Context, contexts: readonly Context[], actual: NetworkActual): readonly string[] {
  const { vrf, forwarding, routing } = context;
  const acls = (routing.acls ?? []).flatMap(aclLines);
  const isOpen = vrf === undefined && acls.length === 0;
  const unmarked = `meta mark and ${MARK_MASK} == 0`;
  const leaving = forwarding ? leavingMatch(context, contexts, actual) : "";
  return [...(leaving === undefined ? [] : [`${unmarked} ${leaving}drop`]), ...acls, isOpen ? "accept" : "drop"];
}

/** Matches the links outside a context; undefined if there are none, empty if all are. */
function leavingMatch(
  { vrf, members }: Context,
  contexts: readonly Context[],
  actual: NetworkActual,
): string | undefined {
  const isDefault = vrf === undefined;
  const others = contexts.flatMap((one) => (one.vrf === undefined ? [] : entriesOf(one, actual)));
  const links = isDefault ? others : members.map(({ link }) => link);
  if (links.length === 0) return isDefault ? undefined : "";
  return `oifname ${isDefault ? "" : "!= "}${linkSet(links)} `;
}

function aclLines(acl: Acl): readonly string[] {
  const match = matchText(acl);
  if (acl.action === "reject") return rejectLines(match, acl.protocol);
  return [`${match} ${acl.action === "allow" ? "accept" : "drop"}`.trim()];
}

/** Filters input to this machine. Loopback and established flows always pass. */
export function localChains(contexts: readonly Context[], actual: NetworkActual, isDark: boolean): readonly Chain[] {
  const apart = actual.features.vrf ? [] : apartLines(contexts, actual);
  const dark = ["icmp type echo-request drop", "icmpv6 type echo-request drop"];
  const input = [...apart, ...(isDark ? dark : [])];
  // Closed ports send no reply. Rejections of forwarded packets have the other end's address and pass; large packets would vanish without
  // "fragmentation needed" (RFC 1191).
  const output = [
    "ct direction reply tcp flags & rst == rst fib saddr type local drop",
    "icmp type destination-unreachable icmp code != { frag-needed, admin-prohibited } drop",
  ];
  return [
    {
      name: "input",
      hook: "filter hook input priority filter",
      lines: input.length === 0 ? [] : ['iifname "lo" accept', ESTABLISHED, ...input],
    },
    {
      name: "output",
      hook: "filter hook output priority filter",
      lines: isDark ? ['oifname "lo" accept', ...output] : [],
    },
  ];
}

/** Without VRF devices, addresses of one context would answer on the interfaces of all others. */
function apartLines(contexts: readonly Context[], { state }: NetworkActual): readonly string[] {
  if (!contexts.some(({ vrf, members }) => vrf !== undefined && members.length > 0)) return [];
  const own = contexts.map((context) => {
    const addresses = context.members.flatMap((member) => addressesOf(member, state));
    return { context, addresses: [...new Set(addresses.map((address) => address.split("/", 1)[0] ?? ""))] };
  });
  return own.flatMap(({ context, addresses }) => {
    const links = context.members.map(({ link }) => link);
    if (links.length === 0) return [];
    if (context.vrf !== undefined) {
      const others = addresses.length === 0 ? "" : `ip daddr != { ${addresses.join(", ")} } `;
      return [`iifname ${linkSet(links)} ${others}fib daddr type local drop`];
    }
    const known = new Set(addresses);
    const others = own.flatMap((one) => (one.context === context ? [] : one.addresses.filter((it) => !known.has(it))));
    return others.length === 0
      ? []
      : [`iifname ${linkSet(links)} ip daddr { ${[...new Set(others)].join(", ")} } drop`];
  });
}
