import { z } from "zod";
import { HostError, toError } from "../../../errors.ts";
import { ALTNAME_PREFIX, addressLabel, OUR_GROUP } from "./lines.ts";
import {
  OUR_PROTOCOL,
  type AddressState,
  type LinkState,
  type NeighbourState,
  type RouteKind,
  type RouteState,
  type RuleState,
} from "../state/state.ts";
import { defined } from "../../../lib/defined.ts";

/** Input of `ip -4 -N -json -details -batch -`; each line prints one document. */
export const SHOW_ALL = "link show\naddress show\nroute show table all\nrule show\n";

/** The parsed output of `SHOW_ALL`. */
export interface IpOutput {
  readonly links: readonly LinkState[];
  readonly addresses: readonly AddressState[];
  readonly routes: readonly RouteState[];
  readonly rules: readonly RuleState[];
}

const LOCAL_TABLE = 255;
const FOREVER = 0xffff_ffff;
const NO_MAC = "00:00:00:00:00:00";

/** rtm_type and rt_scope of rtnetlink(7), by number and by name. */
const ROUTE_KINDS: Readonly<Record<string, RouteKind>> = {
  1: "unicast",
  6: "blackhole",
  7: "unreachable",
  8: "prohibit",
  unicast: "unicast",
  blackhole: "blackhole",
  unreachable: "unreachable",
  prohibit: "prohibit",
};
const SCOPES: Readonly<Record<string, RouteState["scope"]>> = {
  200: "site",
  253: "link",
  254: "host",
  site: "site",
  link: "link",
  host: "host",
};
/** Names of /etc/iproute2 that older tools print in spite of -N. */
const NUMBERS: Readonly<Record<string, number>> = {
  default: 253,
  main: 254,
  local: 255,
  unspec: 0,
  kernel: 2,
  boot: 3,
  static: 4,
  dhcp: 16,
};

const Numbered = z.union([z.number(), z.string()]).transform((value, context) => {
  const number = typeof value === "number" ? value : /^\d+$/.test(value) ? Number(value) : NUMBERS[value];
  if (number !== undefined) return number;
  context.addIssue({ code: "custom", message: `unknown name ${value}` });
  return z.NEVER;
});
const Mark = z
  .string()
  .regex(/^0x[0-9a-f]{1,8}$/i)
  .transform(Number);
/** Older tools print an empty object for each filtered item. */
const listOf = <T extends z.ZodType>(item: T) =>
  z.preprocess((value) => (Array.isArray(value) ? value.filter((one) => !isEmpty(one)) : value), z.array(item));

const Links = listOf(
  z.object({
    ifname: z.string(),
    ifindex: z.number(),
    flags: z.array(z.string()),
    mtu: z.number(),
    max_mtu: z.number().optional(),
    operstate: z.string().default("unknown"),
    link: z.string().optional(),
    master: z.string().optional(),
    address: z.string().optional(),
    group: z.union([z.string(), z.number()]).optional(),
    altnames: z.array(z.string()).default([]),
    linkinfo: z
      .object({
        info_kind: z.string().optional(),
        info_data: z.object({ id: z.unknown().optional(), table: z.unknown().optional() }).optional(),
      })
      .optional(),
  }),
);
const Addresses = listOf(
  z.object({
    ifname: z.string(),
    ifindex: z.number().optional(),
    addr_info: listOf(
      z.object({
        family: z.string(),
        local: z.string().optional(),
        prefixlen: z.number(),
        label: z.string().optional(),
        protocol: z.union([z.string(), z.number()]).optional(),
        valid_life_time: z.number().optional(),
        noprefixroute: z.boolean().optional(),
      }),
    ).default([]),
  }),
);
/** Compiled on first use, because there may be thousands of routes and rules. */
const quick = <T>(schema: z.ZodType<T>): z.ZodType<T> => z.lazy(() => z.compile(schema));
const Routes = listOf(
  z.object({
    type: z.union([z.string(), z.number()]).default("unicast"),
    dst: z.string(),
    gateway: z.string().optional(),
    dev: z.string().optional(),
    table: Numbered.default(254),
    // FRR and others may have names of their own; none of them is ours.
    protocol: Numbered.catch(0).default(3),
    scope: z.union([z.string(), z.number()]).default("global"),
    metric: z.number().default(0),
    prefsrc: z.string().optional(),
    flags: z.array(z.string()).default([]),
  }),
);
const Rules = listOf(
  z.looseObject({
    priority: z.number(),
    src: z.string().default("all"),
    srclen: z.number().default(32),
    dst: z.string().default("all"),
    dstlen: z.number().default(32),
    iif: z.string().optional(),
    oif: z.string().optional(),
    fwmark: Mark.optional(),
    fwmask: Mark.optional(),
    table: Numbered.optional(),
    suppress_prefixlen: z.number().optional(),
    protocol: Numbered.catch(0).default(0),
  }),
);
const [QuickRoutes, QuickRules] = [quick(Routes), quick(Rules)];
const RULE_KEYS = new Set(
  "priority src srclen dst dstlen iif oif iif_detached oif_detached fwmark fwmask table suppress_prefixlen protocol".split(
    " ",
  ),
);
const Neighbours = listOf(
  z.object({
    dst: z.string(),
    dev: z.string(),
    lladdr: z.string().optional(),
    state: z.array(z.string()).default([]),
  }),
);

/**
 * Parses the output of `SHOW_ALL`. `isListed` reports whether an address without a visible mark is known to be ours.
 * @throws {HostError} `bad-output` if a document is missing or has another form.
 */
export function parseShown(
  stdout: string,
  isListed: (link: string, address: string, index: number | undefined) => boolean,
): IpOutput {
  const [links, addresses, routes, rules] = documentsOf(stdout, 4);
  return {
    links: read(Links, links, "links").map(linkState),
    addresses: read(Addresses, addresses, "addresses").flatMap(({ ifname, ifindex, addr_info }) =>
      addr_info.flatMap(({ family, local, prefixlen, label, protocol, valid_life_time, noprefixroute }) => {
        if (family !== "inet" || local === undefined) return [];
        const address = `${local}/${prefixlen}`;
        const isMarked = label !== undefined && label === addressLabel(ifname);
        const isDynamic = (valid_life_time ?? FOREVER) !== FOREVER;
        // A client that leases an address that we had set takes it over, with our mark.
        const isOurs =
          !isDynamic && (isMarked || String(protocol) === String(OUR_PROTOCOL) || isListed(ifname, address, ifindex));
        return [{ link: ifname, address, isOurs, isDynamic, ...(noprefixroute === true ? { hasNoRoute: true } : {}) }];
      }),
    ),
    routes: read(QuickRoutes, routes, "routes").flatMap(routeState),
    rules: read(QuickRules, rules, "rules").flatMap(ruleState),
  };
}

/**
 * Parses the output of `ip -4 -N -json neighbour show`.
 * @throws {HostError} `bad-output`.
 */
export function parseNeighbours(stdout: string): readonly NeighbourState[] {
  const [document] = documentsOf(stdout, 1);
  return read(Neighbours, document, "neighbours").map(neighbourState);
}

function linkState(raw: z.infer<typeof Links>[number]): LinkState {
  const { ifname, flags, altnames, linkinfo, link, master, address, group } = raw;
  const kind = linkinfo?.info_kind;
  const { id, table } = linkinfo?.info_data ?? {};
  const mac = address?.toLowerCase();
  const hasMac = mac !== undefined && mac !== NO_MAC && /^[0-9a-f]{2}(?::[0-9a-f]{2}){5}$/.test(mac);
  const isMarked = altnames.some((name) => name.startsWith(ALTNAME_PREFIX)) || String(group) === String(OUR_GROUP);
  return {
    name: ifname,
    index: raw.ifindex,
    ...defined({ kind }),
    ...(kind === "vlan" && link !== undefined ? { parent: link } : {}),
    ...(kind === "vlan" && typeof id === "number" ? { vlanId: id } : {}),
    ...(kind === "vrf" && typeof table === "number" ? { table } : {}),
    ...defined({ master }),
    mtu: raw.mtu,
    ...(raw.max_mtu === undefined || raw.max_mtu === 0 ? {} : { maxMtu: raw.max_mtu }),
    ...(hasMac ? { mac } : {}),
    isUp: flags.includes("UP"),
    hasCarrier: flags.includes("LOWER_UP"),
    operState: raw.operstate.toLowerCase(),
    isOurs: ifname.startsWith("hf-") || isMarked,
    altnames,
  };
}

function routeState(raw: z.infer<typeof Routes>[number]): readonly RouteState[] {
  const kind = ROUTE_KINDS[raw.type];
  if (kind === undefined || raw.table === LOCAL_TABLE) return [];
  return [
    {
      table: raw.table,
      kind,
      destination: raw.dst === "default" ? "0.0.0.0/0" : raw.dst.includes("/") ? raw.dst : `${raw.dst}/32`,
      ...defined({ via: raw.gateway }),
      // Some versions show a route to nowhere with the loopback link.
      ...(raw.dev === undefined || kind !== "unicast" ? {} : { link: raw.dev }),
      metric: raw.metric,
      protocol: raw.protocol,
      scope: SCOPES[raw.scope] ?? "global",
      isOnLink: raw.flags.includes("onlink"),
      ...defined({ source: raw.prefsrc }),
    },
  ];
}

/** Returns nothing for a rule with unknown selectors, which must not be taken for the plain one. */
function ruleState(raw: z.infer<typeof Rules>[number]): readonly RuleState[] {
  const { priority, src, srclen, dst, dstlen, iif, oif, fwmark, fwmask, table, protocol } = raw;
  const { suppress_prefixlen: suppressLength } = raw;
  if (table === undefined || Object.keys(raw).some((key) => !RULE_KEYS.has(key))) return [];
  return [
    {
      priority,
      protocol,
      ...(src === "all" ? {} : { from: `${src}/${srclen}` }),
      ...(dst === "all" ? {} : { to: `${dst}/${dstlen}` }),
      ...defined({ inLink: iif, outLink: oif }),
      ...(fwmark === undefined ? {} : { mark: fwmark, mask: fwmask ?? FOREVER }),
      table,
      ...defined({ suppressLength }),
    },
  ];
}

function neighbourState({ dst, dev, lladdr, state }: z.infer<typeof Neighbours>[number]): NeighbourState {
  const states = state.map((word) => word.toLowerCase());
  return { link: dev, address: dst, ...(lladdr === undefined ? {} : { mac: lladdr.toLowerCase() }), states };
}

function documentsOf(stdout: string, count: number): readonly unknown[] {
  const texts = stdout.split("\n").filter((line) => line.trim() !== "");
  if (texts.length !== count) throw badOutput(`${texts.length} documents in place of ${count}`);
  try {
    return texts.map((text): unknown => JSON.parse(text));
  } catch (error) {
    throw badOutput(toError(error).message, error);
  }
}

function read<T extends z.ZodType>(schema: T, document: unknown, what: string): z.infer<T> {
  const parsed = schema.safeParse(document);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw badOutput(`${what}.${issue?.path.join(".")}: ${issue?.message}`, parsed.error);
}

function badOutput(what: string, cause?: unknown): HostError {
  return new HostError("bad-output", `cannot parse the output of ip: ${what}`, { cause, details: { tool: "ip" } });
}

function isEmpty(value: unknown): boolean {
  return typeof value === "object" && value !== null && Object.keys(value).length === 0;
}
