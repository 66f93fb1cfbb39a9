import { HostError } from "../../../errors.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { OUR_PROTOCOL, type AddressTarget, type LinkTarget, type RouteState, type RuleState } from "../state/state.ts";

/** Prefix of the altname that marks our links with predetermined names. */
export const ALTNAME_PREFIX = "holdfast:";

/** The link group of our links. Unlike an altname it is set at creation (ip-link(8)). */
export const OUR_GROUP = OUR_PROTOCOL;

/** Suffix of the labels of our addresses, after the link's name. */
const LABEL_MARK = ":hf";

/** Longest name of a link, and of a label (IFNAMSIZ of if.h, minus the terminator). */
const MAX_NAME = 15;

type RouteTarget = Omit<RouteState, "protocol">;
type RuleTarget = Omit<RuleState, "protocol">;

/** Returns the label that marks our address; undefined if the link's name is too long, and then the ledger records the address. */
export function addressLabel(link: string): string | undefined {
  const label = `${link}${LABEL_MARK}`;
  return label.length > MAX_NAME ? undefined : label;
}

/** Returns the lines that create our link, marked at creation; the second line adds the altname that other tools show. */
export function addLinkLines(link: LinkTarget): readonly string[] {
  if (link.kind === undefined) return [];
  const name = word(link.name);
  const mtu = link.mtu === undefined ? "" : ` mtu ${link.mtu}`;
  const named = `name ${name}${mtu} group ${OUR_GROUP} type ${link.kind}`;
  const made =
    link.kind === "vlan"
      ? `link add link ${word(link.parent ?? "")} ${named} id ${link.vlanId ?? 1}`
      : `link add ${named} table ${link.table ?? 0}`;
  return [made, `link property add dev ${name} altname ${ALTNAME_PREFIX}${name}`];
}

/** Settings that can be changed on an existing link. */
export interface LinkSetting {
  readonly name: string;
  readonly mtu?: number;
  /** Null removes it from its bridge, bond or VRF. */
  readonly master?: string | null;
  readonly isUp?: boolean;
}

/** Returns the line that sets a link, switching it on or off last; undefined if nothing is set. */
export function setLinkLine({ name, mtu, master, isUp }: LinkSetting): string | undefined {
  const words = [
    ...(mtu === undefined ? [] : ["mtu", `${mtu}`]),
    ...(master === undefined ? [] : master === null ? ["nomaster"] : ["master", word(master)]),
    ...(isUp === undefined ? [] : [isUp ? "up" : "down"]),
  ];
  return words.length === 0 ? undefined : ["link", "set", "dev", word(name), ...words].join(" ");
}

/** Returns the line that deletes our link with its addresses and routes. */
export function deleteLinkLine(name: string): string {
  return `link delete dev ${word(name)}`;
}

/**
 * Returns the line that adds an address with our mark. An existing address stays with its owner. A block of four or more gets its
 * broadcast address, as other tools set it.
 */
export function addressLine({ link, address, hasNoRoute }: AddressTarget): string {
  const label = addressLabel(link);
  const broadcast = Number(address.split("/")[1] ?? 32) <= 30 ? ["brd", "+"] : [];
  const mark = label === undefined ? [] : ["label", word(label)];
  const route = hasNoRoute === true ? ["noprefixroute"] : [];
  return ["address", "replace", word(address), ...broadcast, "dev", word(link), ...mark, ...route].join(" ");
}

/**
 * Returns the line that deletes an address. With the first address of a subnet the kernel deletes the others, unless the link has
 * `promote_secondaries` (ip-sysctl of the kernel).
 */
export function deleteAddressLine({ link, address }: AddressTarget): string {
  return `address delete ${word(address)} dev ${word(link)}`;
}

/**
 * Returns the lines that recreate an address, whose flags cannot be changed. The machine keeps it under an unused prefix length
 * meanwhile, so routes with it as their source stay, as do all routes of the link.
 */
export function swapAddressLines(address: AddressTarget, isFree: (other: AddressTarget) => boolean): readonly string[] {
  const { link } = address;
  const [host = ""] = address.address.split("/");
  const held = LENGTHS.map((length) => ({ link, address: `${host}/${length}`, hasNoRoute: true })).find(isFree);
  const swap = [deleteAddressLine(address), addressLine(address)];
  return held === undefined ? swap : [addressLine(held), ...swap, deleteAddressLine(held)];
}

const LENGTHS = [32, 31, 30, 29];

/**
 * Returns the line that adds our route, before an existing one with the same table, destination and metric. So ours is used and the
 * other stays.
 */
export function routeLine(route: RouteTarget): string {
  return `route prepend ${routeWords(route)}${route.isOnLink ? " onlink" : ""}`;
}

/**
 * Returns the line that adds our route behind those of the same table, destination and metric. If two differ only by a source,
 * the kernel deletes the first one when the request names none.
 */
export function lastRouteLine(route: RouteTarget): string {
  return `route append ${routeWords(route)}${route.isOnLink ? " onlink" : ""}`;
}

/** Returns the line of an address's subnet route as the kernel creates it; it is removed with the address. */
export function subnetRouteLine({ link, address, table }: AddressTarget & { readonly table: number }): string {
  const source = address.split("/", 1)[0] ?? "";
  const subnet = parseCidr(address)?.text ?? address;
  return `route append ${subnet} dev ${link} table ${table} proto kernel scope link src ${source}`;
}

/** Returns the line that deletes exactly this route of ours. */
export function deleteRouteLine(route: RouteTarget): string {
  return `route delete ${routeWords(route)}`;
}

/** Returns the line that adds our rule. The kernel accepts a duplicate rule only with a different protocol. */
export function ruleLine(rule: RuleTarget): string {
  return ["rule", "add", ...ruleWords(rule)].join(" ");
}

/** Returns the line that deletes exactly this rule of ours. */
export function deleteRuleLine(rule: RuleTarget): string {
  return ["rule", "delete", ...ruleWords(rule)].join(" ");
}

/** Returns the address of a line of `addressLine` or `deleteAddressLine`. */
export function addressOfLine(line: string): (AddressTarget & { readonly isAdded: boolean }) | undefined {
  // Most lines are not about addresses.
  if (!line.startsWith("address ")) return undefined;
  const [, verb, address, ...rest] = line.split(" ");
  const link = rest.includes("dev") ? rest[rest.indexOf("dev") + 1] : undefined;
  if (address === undefined || link === undefined) return undefined;
  return { address, link, isAdded: verb === "replace" };
}

function routeWords({ kind, destination, via, link, metric, table, scope, source }: RouteTarget): string {
  const gateway = via === undefined ? "" : ` via ${word(via)}`;
  const device = link === undefined ? "" : ` dev ${word(link)}`;
  const rank = metric === 0 ? "" : ` metric ${metric}`;
  // The kernel has no other scope for routes to nowhere.
  const reach = kind === "unicast" ? ` scope ${scope}` : "";
  const from = source === undefined ? "" : ` src ${word(source)}`;
  return `${kind} ${word(destination)}${gateway}${device}${rank} table ${table} proto ${OUR_PROTOCOL}${reach}${from}`;
}

function ruleWords(rule: RuleTarget): readonly string[] {
  const mark = rule.mark === undefined ? [] : ["fwmark", `${hex(rule.mark)}/${hex(rule.mask ?? 0xffff_ffff)}`];
  return [
    "priority",
    `${rule.priority}`,
    "from",
    rule.from === undefined ? "all" : word(rule.from),
    ...(rule.to === undefined ? [] : ["to", word(rule.to)]),
    ...(rule.inLink === undefined ? [] : ["iif", word(rule.inLink)]),
    ...(rule.outLink === undefined ? [] : ["oif", word(rule.outLink)]),
    ...mark,
    "table",
    `${rule.table}`,
    ...(rule.suppressLength === undefined ? [] : ["suppress_prefixlength", `${rule.suppressLength}`]),
    "protocol",
    `${OUR_PROTOCOL}`,
  ];
}

const hex = (value: number): string => `0x${value.toString(16)}`;

/** Returns a word of a batch line; refuses spaces, and quotes, backslashes and `#`, which have a meaning there. */
export function word(text: string): string {
  if (/^[^\s"'#\\\p{Cc}]+$/u.test(text)) return text;
  const message = `ip -batch does not accept the name ${JSON.stringify(text)}`;
  throw new HostError("bad-name", message, { details: { name: text } });
}
