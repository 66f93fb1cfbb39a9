import type { Acl } from "../../../protocol/sections/network-config.ts";
import type { NetworkActual } from "./actual.ts";
import { addressesOf, type Context } from "./contexts.ts";
import { byContext, linkSet, matchText, nameIn, rejectLines, type Chain, inOrder, MARK_MASK } from "./firewall-text.ts";

const ESTABLISHED = "ct state established,related accept";

/**
 * What may pass between the interfaces of the section: within a context what its ACLs allow, between contexts only what a rule hands over.
 * Interfaces that are not in the section, a container's bridge say, are none of our business.
 */
export function forwardChains(contexts: readonly Context[], actual: NetworkActual): readonly Chain[] {
  const managed = contexts.flatMap((context) => context.members.map(({ link }) => link));
  if (managed.length === 0) return [];
  const entering = contexts.flatMap((context) => entriesOf(context, actual));
  const between = `iifname ${linkSet(entering)} oifname ${linkSet(managed)} jump between`;
  const chainOf = (context: Context): string => nameIn(context, "from");
  return [
    ...contexts.map((context) => ({ name: chainOf(context), lines: fromLines(context) })),
    {
      name: "between",
      lines: byContext("iifname", contexts, "goto", chainOf, (context) => entriesOf(context, actual)),
    },
    { name: "forward", hook: "filter hook forward priority filter", lines: [ESTABLISHED, between] },
  ];
}

/** What the kernel calls the interface that a packet came in on: with VRF devices, that device. */
function entriesOf({ vrf, members }: Context, { features }: NetworkActual): readonly string[] {
  const links = members.map(({ link }) => link);
  return vrf !== undefined && features.vrf ? [...links, vrf] : links;
}

function fromLines(context: Context): readonly string[] {
  const { vrf, forwarding, members, routing } = context;
  const unmarked = `meta mark and ${MARK_MASK} == 0`;
  const own = linkSet(members.map(({ link }) => link));
  const acls = inOrder(routing.acls ?? []).flatMap(aclLines);
  const isOpen = vrf === undefined && acls.length === 0;
  return [
    ...(members.length === 0 || !forwarding ? [`${unmarked} drop`] : [`${unmarked} oifname != ${own} drop`]),
    ...acls,
    isOpen ? "accept" : "drop",
  ];
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
