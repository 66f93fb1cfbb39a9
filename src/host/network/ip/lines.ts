import { HostError } from "../../../errors.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { OUR_PROTOCOL, type AddressTarget, type LinkTarget, type RouteState, type RuleState } from "../state/state.ts";

/** The first part of the altname that marks a link of ours whose name is not free for us to choose. */
export const ALTNAME_PREFIX = "holdfast:";

/** The link group of what we make: unlike an altname it is there from the moment the link is (ip-link(8)). */
export const OUR_GROUP = OUR_PROTOCOL;

/** What an address of ours has after its link's name as a label. */
export const LABEL_MARK = ":hf";

/** Longest name of a link, and of a label (IFNAMSIZ of if.h, less its end). */
const MAX_NAME = 15;

type RouteTarget = Omit<RouteState, "protocol">;
type RuleTarget = Omit<RuleState, "protocol">;

/** The label that marks an address of ours; undefined where the link's name leaves no room for it, and the ledger tells. */
export function addressLabel(link: string): string | undefined {
  const label = `${link}${LABEL_MARK}`;
  return label.length > MAX_NAME ? undefined : label;
}

/** Makes a link of ours, marked from its first moment; the second line gives it the altname that other tools show. */
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

/** What of a link can be set while it stands. */
export interface LinkSetting {
  readonly name: string;
  readonly mtu?: number;
  /** Null: of no bridge, bond or VRF. */
  readonly master?: string | null;
  readonly isUp?: boolean;
}

/** Sets a link, and switches it on or off last. Undefined when there is nothing to set. */
export function setLinkLine({ name, mtu, master, isUp }: LinkSetting): string | undefined {
  const words = [
    ...(mtu === undefined ? [] : ["mtu", `${mtu}`]),
    ...(master === undefined ? [] : master === null ? ["nomaster"] : ["master", word(master)]),
    ...(isUp === undefined ? [] : [isUp ? "up" : "down"]),
  ];
  return words.length === 0 ? undefined : ["link", "set", "dev", word(name), ...words].join(" ");
}

/** Takes a link of ours away, with its addresses and routes. */
export function deleteLinkLine(name: string): string {
  return `link delete dev ${word(name)}`;
}

/**
 * Adds an address with our mark; one that is there stays, and stays whose it was. A block of four and more gets its broadcast
 * address, as every other tool gives it.
 */
export function addressLine({ link, address, hasNoRoute }: AddressTarget): string {
  const label = addressLabel(link);
  const broadcast = Number(address.split("/")[1] ?? 32) <= 30 ? ["brd", "+"] : [];
  const mark = label === undefined ? [] : ["label", word(label)];
  const route = hasNoRoute === true ? ["noprefixroute"] : [];
  return ["address", "replace", word(address), ...broadcast, "dev", word(link), ...mark, ...route].join(" ");
}

/**
 * Takes an address away. With the first of a subnet the kernel takes the others of the same subnet along, unless the link has
 * `promote_secondaries` (ip-sysctl of the kernel).
 */
export function deleteAddressLine({ link, address }: AddressTarget): string {
  return `address delete ${word(address)} dev ${word(link)}`;
}

/**
 * Makes an address anew, whose flags cannot be changed. Under a prefix length that is free the machine has it all the while, and so neither
 * the routes that name it as their source nor, with the last address, all others of the link are dropped.
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
 * Adds a route of ours. Where another one has the same table, destination and metric it goes in before that, so that ours is taken
 * and the other stays.
 */
export function routeLine(route: RouteTarget): string {
  return `route prepend ${routeWords(route)}${route.isOnLink ? " onlink" : ""}`;
}

/**
 * Adds a route of ours behind those of the same table, destination and metric. Of two that differ only in that one names a source, the
 * kernel deletes the first if the request names none.
 */
export function lastRouteLine(route: RouteTarget): string {
  return `route append ${routeWords(route)}${route.isOnLink ? " onlink" : ""}`;
}

/** The route to the subnet of an address as the kernel makes it, with which it goes. */
export function subnetRouteLine({ link, address, table }: AddressTarget & { readonly table: number }): string {
  const source = address.split("/", 1)[0] ?? "";
  const subnet = parseCidr(address)?.text ?? address;
  return `route append ${subnet} dev ${link} table ${table} proto kernel scope link src ${source}`;
}

/** Takes exactly this route of ours away. */
export function deleteRouteLine(route: RouteTarget): string {
  return `route delete ${routeWords(route)}`;
}

/** Adds a rule of ours. The kernel takes the same rule twice only when its protocol differs. */
export function ruleLine(rule: RuleTarget): string {
  return ["rule", "add", ...ruleWords(rule)].join(" ");
}

/** Takes exactly this rule of ours away. */
export function deleteRuleLine(rule: RuleTarget): string {
  return ["rule", "delete", ...ruleWords(rule)].join(" ");
}

/** The address that a line of `addressLine` or `deleteAddressLine` is about. */
export function addressOfLine(line: string): (AddressTarget & { readonly isAdded: boolean }) | undefined {
  // Of most lines nothing more has to be known.
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
  // The kernel knows no other scope for those that lead nowhere.
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

/** A batch splits lines at spaces, and quotes, backslashes and `#` mean something in it. */
export function word(text: string): string {
  if (/^[^\s"'#\\\p{Cc}]+$/u.test(text)) return text;
  const message = `ip-batch cannot take the name ${JSON.stringify(text)}`;
  throw new HostError("bad-name", message, { details: { name: text } });
}
