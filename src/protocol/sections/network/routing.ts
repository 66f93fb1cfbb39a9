import { z } from "zod";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { isPresent, toNumber, type RawItem } from "../common/forms.ts";
import type { JsonObject } from "../../values/values.ts";
import type { Acl, L4Protocol, Nat, PolicyRule, PortRange, Routing, VrfRoute } from "./config.ts";
import { Network, NETWORK_LIMITS } from "./fields.ts";
import type { NetworkNames } from "./names.ts";
import type { NetworkReader, Place } from "./reader.ts";
import { AclItem, NatItem, RuleItem, VrfRouteItem } from "./routing-fields.ts";
import { defined } from "../../../lib/defined.ts";

const ANY = "0.0.0.0/0";
const DROP_ALL: Acl = { protocol: "any", source: ANY, dest: ANY, action: "drop" };

/** A schema made into code when it is used first: of these items a section may have thousands. */
const quick = <T>(schema: z.ZodType<T>): z.ZodType<T> => z.lazy(() => z.compile(schema));
const QuickRoute = quick(VrfRouteItem);
const QuickNat = quick(NatItem);
const QuickAcl = quick(AclItem);
const QuickRule = quick(RuleItem);

/** Reads the lists of one routing context: a VRF, or without its name the default one. */
export function readRouting(
  reader: NetworkReader,
  at: Place,
  fields: JsonObject,
  names: NetworkNames,
  isDefault: boolean,
): Routing {
  const items = <T, R>(
    name: "routes" | "nats",
    schema: z.ZodType<T>,
    read: (item: T, at: RawItem) => R | undefined,
  ): readonly Placed<R>[] => {
    const found: Placed<R>[] = [];
    for (const entry of reader.entries(at, fields, name, NETWORK_LIMITS[name]).entries) {
      const item = reader.judge(entry, schema);
      const value = item === undefined ? undefined : read(item, entry);
      if (value !== undefined) found.push({ value, at: entry });
    }
    return found;
  };
  const rules = rulesOf(reader, at, fields, names);
  return {
    routes: uniqueRoutes(
      reader,
      items("routes", QuickRoute, (item, entry) => routeOf(reader, entry, item, names)),
    ),
    nats: items("nats", QuickNat, (item, entry) => natOf(reader, entry, item)).map(({ value }) => value),
    ...aclsOf(reader, at, fields, isDefault),
    rules,
  };
}

interface Placed<T> {
  readonly value: T;
  readonly at: RawItem;
}

/** Sorts by `line`: unreadable lines first, missing ones last in written order. */
function inOrder<T>(found: readonly Placed<T>[]): T[] {
  const lineOf = ({ fields: { line } }: RawItem): number =>
    isPresent(line) && line !== "" ? (toNumber(line) ?? -Infinity) : Infinity;
  const places = found.map(({ value, at }) => ({ value, line: lineOf(at) }));
  return places.toSorted((a, b) => (a.line === b.line ? 0 : a.line - b.line)).map(({ value }) => value);
}

function routeOf(
  reader: NetworkReader,
  at: RawItem,
  item: z.output<typeof VrfRouteItem>,
  names: NetworkNames,
): VrfRoute | undefined {
  const { dest, via, metric } = item;
  if (item.dev === undefined && via === undefined) {
    reader.conflict("E_REQUIRED", at, "dev", "is required without via");
    return undefined;
  }
  const dev = linkOf(reader, at, "dev", item.dev, names);
  return { dest, ...optional({ dev, via, metric, uid: item.uid, description: item.description }) };
}

/** Rejects the later of two routes with equal destination and metric, which the kernel cannot distinguish. */
function uniqueRoutes(reader: NetworkReader, found: readonly Placed<VrfRoute>[]): VrfRoute[] {
  const first = new Map<string, string>();
  return found.flatMap(({ value, at }) => {
    const key = `${value.dest} ${value.metric ?? ""}`;
    const other = first.get(key);
    if (other !== undefined) {
      reader.conflict("E_NAME_DUPLICATE", at, "dest", `${value.dest} with this metric is in ${other} already`);
      return [];
    }
    first.set(key, at.path);
    return [value];
  });
}

function natOf(reader: NetworkReader, at: RawItem, item: z.output<typeof NatItem>): Nat | undefined {
  const { toSource, toDest, uid, description } = item;
  const masquerade = item.masquerade ?? false;
  const source = item.source === ANY ? undefined : item.source;
  const dest = item.dest === ANY ? undefined : item.dest;
  const issues = reader.rejected.length;
  if (toSource === undefined && toDest === undefined && !masquerade) {
    reader.conflict("E_REQUIRED", at, "", "translates nothing: it needs toSource, toDest or masquerade");
  }
  if (masquerade && toSource !== undefined) {
    reader.conflict("E_DEPENDENCY", at, "toSource", "has no place beside masquerade");
  }
  checkLengths(reader, at, "toSource", source, toSource);
  checkLengths(reader, at, "toDest", dest, toDest);
  if (reader.rejected.length > issues) return undefined;
  return { ...optional({ source, dest, toSource, toDest, uid, description }), masquerade };
}

/** Checks that a block is translated to a block of equal length, or to a single address. */
function checkLengths(
  reader: NetworkReader,
  at: RawItem,
  field: "toSource" | "toDest",
  from: string | undefined,
  to: string | undefined,
): void {
  if (to === undefined || lengthOf(to) === 32 || lengthOf(to) === lengthOf(from ?? ANY)) return;
  const text = `${to} has another prefix length than ${from ?? "any"}; only one address may stand for many`;
  reader.conflict("E_PREFIX_MISMATCH", at, field, text);
}

/**
 * Reads address filters. Invalid entries never allow more: an invalid deny is widened, and a list that is too long or has no valid entry
 * denies everything.
 */
function aclsOf(reader: NetworkReader, at: Place, fields: JsonObject, isDefault: boolean): Pick<Routing, "acls"> {
  const { acls: list } = fields;
  if (!isPresent(list)) return {};
  const { entries, isWhole } = reader.entries(at, fields, "acls", NETWORK_LIMITS.acls);
  // A VRF without filters denies everything by itself.
  const nothing = isDefault ? [DROP_ALL] : [];
  if (!isWhole) return { acls: nothing };
  const found = entries.flatMap((entry) => {
    const item = reader.judge(entry, QuickAcl);
    if (item !== undefined) return [{ value: aclOf(reader, entry, item), at: entry }];
    const guard = guardOf(entry.fields);
    return guard === undefined ? [] : [{ value: guard, at: entry }];
  });
  const isEmpty = Array.isArray(list) && list.length === 0;
  return { acls: found.length === 0 && !isEmpty ? nothing : inOrder(found) };
}

function aclOf(reader: NetworkReader, at: RawItem, item: z.output<typeof AclItem>): Acl {
  const { protocol, source, dest, line } = item;
  const action = item.action === "accept" ? "allow" : item.action;
  return { protocol, source, dest, ...portsOf(reader, at, item), action, ...optional({ line }), ...aboutOf(item) };
}

function guardOf({ action, source, dest }: JsonObject): Acl | undefined {
  if (action === "allow" || action === "accept") return undefined;
  const [from, to] = [source, dest].map((value) => Network.safeParse(value).data ?? ANY);
  return { ...DROP_ALL, source: from ?? ANY, dest: to ?? ANY };
}

/** The rules that apply before routing. A rule that cannot be used drops the packets that it may match. */
function rulesOf(reader: NetworkReader, at: Place, fields: JsonObject, names: NetworkNames): PolicyRule[] {
  const { entries } = reader.entries(at, fields, "rules", NETWORK_LIMITS.rules);
  return inOrder(
    entries.flatMap((entry) => {
      const item = reader.judge(entry, QuickRule);
      const rule = (item === undefined ? undefined : ruleOf(reader, entry, item, names)) ?? heldRule(entry, names);
      return rule === undefined ? [] : [{ value: rule, at: entry }];
    }),
  );
}

/** The rule, unless it lacks something that it names. */
function ruleOf(
  reader: NetworkReader,
  at: RawItem,
  item: z.output<typeof RuleItem>,
  names: NetworkNames,
): PolicyRule | undefined {
  const { protocol, source, dest, action, line, vrf, dmac } = item;
  if (action === "forward" && item.iface === undefined && vrf === undefined) {
    reader.conflict("E_REQUIRED", at, "iface", "is required with action forward, or vrf");
    return undefined;
  }
  if (action === "dnat" && item.dnat === undefined) {
    reader.conflict("E_REQUIRED", at, "dnat", "is required with action dnat");
    return undefined;
  }
  if (!names.hasVrf(vrf)) {
    reader.unknown(
      at,
      "vrf",
      `there is no VRF ${vrf}; what the rule matches is dropped until there is one`,
      "network.vrfs",
    );
    return undefined;
  }
  const [address = "", port] = item.dnat?.split(":") ?? [];
  return {
    index: at.index,
    protocol,
    source,
    dest,
    ...portsOf(reader, at, item),
    ...optional({ in: linkOf(reader, at, "in", item.in, names) }),
    action,
    ...optional({ iface: linkOf(reader, at, "iface", item.iface, names), vrf, line }),
    snat: item.snat ?? false,
    ...(item.dnat === undefined ? {} : { dnat: { address, ...(port === undefined ? {} : { port: Number(port) }) } }),
    ...optional({ dmac: dmac?.toLowerCase() }),
    ...aboutOf(item),
  };
}

/** Drops all that a rule may match; nothing in place of one that only lets pass or logs. */
function heldRule({ index, fields }: RawItem, names: NetworkNames): PolicyRule | undefined {
  const { action, line } = fields;
  if (action === "accept" || action === "log") return undefined;
  const read = <T>(schema: z.ZodType<T>, name: string): T | undefined => schema.safeParse(fields[name]).data;
  const { protocol: Protocol, source: End, ports: Ports, in: Link } = RuleItem.shape;
  const protocol = read(Protocol, "protocol") ?? "any";
  const [first, last = first] = read(Ports, "ports")?.split("-").map(Number) ?? [];
  const hasPorts = protocol === "tcp" || protocol === "udp";
  const link = read(Link, "in");
  const at = toNumber(line);
  return {
    index,
    protocol,
    source: blockOf(read(End, "source")),
    dest: blockOf(read(End, "dest")),
    ...(hasPorts && first !== undefined && last !== undefined ? { ports: { first, last } } : {}),
    ...(link === undefined ? {} : { in: names.link(link) }),
    action: "hold",
    ...defined({ line: at }),
    snat: false,
  };
}

/** A network without host bits; any where it cannot be read. */
function blockOf(block: string | undefined): string {
  if (block === undefined) return ANY;
  return parseCidr(block)?.text ?? block;
}

function portsOf(
  reader: NetworkReader,
  at: RawItem,
  { protocol, ports }: { readonly protocol: L4Protocol; readonly ports?: string | undefined },
): { readonly ports?: PortRange } {
  if (ports === undefined) return {};
  if (protocol !== "tcp" && protocol !== "udp") {
    reader.tolerate("E_DEPENDENCY", at, "ports", "only tcp and udp have ports", `ignored with ${protocol}`);
    return {};
  }
  const [first = 0, last = first] = ports.split("-").map(Number);
  return { ports: { first, last } };
}

const lengthOf = (network: string): number => {
  const slash = network.indexOf("/");
  return slash < 0 ? 32 : Number(network.slice(slash + 1));
};

/** A link by its name on the machine; one that nothing in the section speaks of may still be there. */
function linkOf(
  reader: NetworkReader,
  at: RawItem,
  field: string,
  name: string | undefined,
  names: NetworkNames,
): string | undefined {
  if (name === undefined) return undefined;
  const link = names.link(name);
  const isKnown = names.has(link) || reader.isUnreadable("network.tunnels");
  if (!isKnown) reader.note("E_REF_UNKNOWN", at, field, `no entry of this section is ${name}`);
  return link;
}

function aboutOf({
  uid,
  description,
}: {
  readonly uid?: string | undefined;
  readonly description?: string | undefined;
}) {
  return optional({ uid, description });
}

/** The fields that are there. */
function optional<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const present: Partial<T> = {};
  for (const name in fields) if (fields[name] !== undefined) present[name] = fields[name];
  return present as { [K in keyof T]?: Exclude<T[K], undefined> };
}
