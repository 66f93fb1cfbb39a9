import type { Acl } from "../../../protocol/sections/network/config.ts";
import type { NetworkActual } from "./actual.ts";
import { addressesOf } from "./contexts.ts";
import { byContext, linkSet, matchText, nameIn, rejectLines, type Chain, MARK_MASK } from "./firewall-text.ts";
import type { Context } from "./context.ts";

const ESTABLISHED = "ct state established,related accept";
const FORWARD_HOOK = "filter hook forward priority filter";

/** Prefixes of the bridges that Docker, Podman and the node's own containers have. */
const ENGINE_PREFIXES = ["docker", "br-", "podman", "cni-podman", "holdfast"] as const;
const ENGINE_LINK = /^(?:docker(?:\d+|_gwbridge)|br-[0-9a-f]{12}|(?:cni-)?podman\d+|holdfast\d+)$/;

/**
 * Decides what is forwarded: within a context what its ACLs allow, between contexts only what a rule hands over. An interface that is not
 * in the section belongs to the default context. Only a container engine's bridges are spared, since the engine filters them itself.
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
        // Only IPv4 is forwarded on behalf of the section.
        "meta nfproto ipv4 goto between",
      ],
    },
  ];
}

/** Kinds of links that programs make to forward through: bridges of virtual machines and tunnels. */
const FOREIGN_KINDS = ["bridge", "tun", "wireguard", "gre", "ipip", "sit", "vti", "xfrm", "vxlan", "geneve", "ppp"];

/**
 * Drops packets between interfaces of the section if the section asks for no routing and another program has enabled forwarding. Packets
 * between two links that are not in the section pass, and so do those of a container engine's bridge or of another program's bridge or
 * tunnel. The chain uses no connection tracking, which the whole machine would have to pay for.
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

/**
 * Clamps the MSS of forwarded TCP connections to the smaller MTU of both directions, so that they do not depend on ICMP.
 */
export const clampChain: Chain = {
  name: "clamp",
  hook: "filter hook forward priority mangle",
  lines: ["tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu"],
};

/** Accepts what comes from or goes to a container; links that only look like an engine's are judged like all others. */
function engineLines(links: readonly string[], managed: ReadonlySet<string>): readonly string[] {
  return ENGINE_PREFIXES.flatMap((prefix) => {
    const others = links.filter((name) => name.startsWith(prefix) && (managed.has(name) || !ENGINE_LINK.test(name)));
    const except = (key: string): string => (others.length === 0 ? "" : `${key} != ${linkSet([...new Set(others)])} `);
    return ["iifname", "oifname"].map((key) => `${except(key)}${key} "${prefix}*" accept`);
  });
}

/** What the kernel calls the interface that a packet came in on: with VRF devices, that device. */
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

/** Matches the links that are outside of a context; undefined when there are none, and empty when all are. */
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

/** What may come to this machine itself. Loopback and what is established always may. */
export function localChains(contexts: readonly Context[], actual: NetworkActual, isDark: boolean): readonly Chain[] {
  const apart = actual.features.vrf ? [] : apartLines(contexts, actual);
  const dark = ["icmp type echo-request drop", "icmpv6 type echo-request drop"];
  const input = [...apart, ...(isDark ? dark : [])];
  // What is closed here answers with nothing. A refusal of what passes through has the other end's address, and without "fragmentation
  // needed" (RFC 1191) large packets would vanish.
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

/** Without VRF devices an address of one context would answer on the interfaces of all. */
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
