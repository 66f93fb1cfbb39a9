import type { Acl, L4Protocol, PolicyRule } from "../../../protocol/sections/network/config.ts";
import type { Context } from "./contexts.ts";

/** A chain of the table; `hook` makes it a base chain. */
export interface Chain {
  readonly name: string;
  /** For example `filter hook input priority filter`. */
  readonly hook?: string;
  readonly lines: readonly string[];
}

/** A map or a set with its elements. */
export interface NamedSet {
  readonly kind: "map" | "set";
  readonly name: string;
  readonly type: string;
  /** True if the keys are blocks instead of single addresses. */
  readonly isInterval: boolean;
  readonly elements: readonly string[];
}

/** Writes the table as input of nft; undefined if it is empty. Base chains accept by default. */
export function tableText(sets: readonly NamedSet[], chains: readonly Chain[]): string | undefined {
  const used = chains.filter(({ lines }) => lines.length > 0);
  if (used.length === 0) return undefined;
  const parts = [...sets.map(setText), ...used.map(chainText)];
  return ["table inet holdfast {", ...parts, "}", ""].join("\n");
}

function setText({ kind, name, type, isInterval, elements }: NamedSet): string {
  // A hash with a preset size does not grow while it is loaded, which takes a tenth of the time.
  const shape = isInterval ? "flags interval" : `size ${elements.length}`;
  return `${kind} ${name} {\ntype ${type}\n${shape}\ncounter\nelements = {\n${elements.join(",\n")}\n}\n}`;
}

function chainText({ name, hook, lines }: Chain): string {
  const head = hook === undefined ? [] : [`type ${hook}; policy accept;`];
  return [`chain ${name} {`, ...head, ...lines, "}"].join("\n");
}

/** Writes a set of link names. */
export function linkSet(links: readonly string[]): string {
  return `{ ${links.map((link) => `"${link}"`).join(", ")} }`;
}

/** Jumps to the chain of a context for packets that enter or leave through its links. */
export function byContext(
  key: "iifname" | "oifname",
  contexts: readonly Context[],
  verdict: "jump" | "goto",
  chainOf: (context: Context) => string | undefined,
  linksOf: (context: Context) => readonly string[] = ({ members }) => members.map(({ link }) => link),
): readonly string[] {
  const elements = contexts.flatMap((context) => {
    const chain = chainOf(context);
    return chain === undefined ? [] : linksOf(context).map((link) => `"${link}" : ${verdict} ${chain}`);
  });
  return elements.length === 0 ? [] : [`${key} vmap { ${elements.join(", ")} }`];
}

/** Returns the name of a chain or map of a context, derived from its table. */
export function nameIn({ table }: Context, what: string): string {
  return `${what}_${table}`;
}

/** Mask of our bits of the packet mark; other programs' bits stay. */
export const MARK_MASK = "0x0ff00000";

const PRIVATE = "{ 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 }";

/** Writes the matches of an ACL or rule; empty if it matches everything. */
export function matchText({
  protocol,
  source,
  dest,
  ports,
}: Pick<Acl & PolicyRule, "protocol" | "source" | "dest" | "ports">): string {
  return [...addressMatch("saddr", source), ...addressMatch("daddr", dest), ...protocolMatch(protocol, ports)].join(
    " ",
  );
}

function addressMatch(field: "saddr" | "daddr", block: string): readonly string[] {
  if (block === "public") return [`ip ${field} != ${PRIVATE}`];
  if (block === "private") return [`ip ${field} ${PRIVATE}`];
  return block === "0.0.0.0/0" ? [] : [`ip ${field} ${block}`];
}

function protocolMatch(protocol: L4Protocol, ports: Acl["ports"]): readonly string[] {
  if (protocol === "any") return [];
  if (protocol === "icmp") return ["meta l4proto icmp"];
  if (ports === undefined) return [`meta l4proto ${protocol}`];
  const { first, last } = ports;
  return [`${protocol} dport ${first === last ? first : `${first}-${last}`}`];
}

/** Returns rules that reject packets: TCP with a reset, other protocols with ICMP `admin-prohibited`. */
export function rejectLines(match: string, protocol: L4Protocol): readonly string[] {
  const tcp = [match, ...(protocol === "any" ? ["meta l4proto tcp"] : []), "reject with tcp reset"].join(" ").trim();
  const other = `${match} reject with icmpx admin-prohibited`.trim();
  if (protocol === "tcp") return [tcp];
  return protocol === "any" ? [tcp, other] : [other];
}
