import { z } from "zod";
import type { GatewayType } from "./domain-items.ts";
import type { JsonObject, NodeType } from "../../values/values.ts";
import { says } from "../common/fields.ts";
import { isPresent } from "../common/forms.ts";
import {
  GatewayAclItem,
  GatewayClientItem,
  gatewayLists,
  GatewayPathItem,
  GatewayRouteItem,
  gatewayScalars,
  HopOverrideItem,
  LatencyMonitorItem,
  type HopMode,
  type HopProtocol,
  type LatencyMode,
} from "./fields.ts";
import { GatewayReader, SECTION } from "./reader.ts";
import type { Found } from "../common/section-reader.ts";
import type { ConfigIssue } from "../common/issue.ts";
import { defined } from "../../../lib/defined.ts";

/** The section `gateway` of the configuration, as strict as the API is; unknown fields are kept. */
export const GatewaySection: z.ZodType<JsonObject> = z
  .looseObject({ ...gatewayScalars, ...gatewayLists }, says("must be an object"))
  .superRefine((section: JsonObject, context) => {
    const reader = new GatewayReader(section);
    gatewayOf(reader, "Node");
    for (const { path, message } of reader.conflicts) {
      const at = path.split(".").slice(1);
      context.addIssue({ code: "custom", path: at, message: message.slice(path.length + ": ".length) });
    }
  });

/** Settings of a gateway's listener; UDP only if enabled. */
export interface GatewayServer {
  readonly type: GatewayType;
  readonly host: string;
  readonly port: number;
  readonly udpEnabled: boolean;
  readonly udpPort: number;
}

/** A node or a cluster by name, FQDN or UID, in lower case. */
export interface GatewayClient {
  readonly name: string;
  readonly enabled: boolean;
}

/** A configured path to the gateway `node`; `isDefault` replaces the built-in path to it. */
export interface GatewayPath {
  readonly id: string;
  readonly node: string;
  readonly host: string;
  readonly port: number;
  readonly local?: string;
  readonly isDefault: boolean;
  readonly enabled: boolean;
}

/** Settings for tracing the path to gateways; payloads in bytes. */
export interface HopMonitoring {
  readonly mode: HopMode;
  readonly protocol: HopProtocol;
  readonly intervalSeconds: number;
  readonly synPayload: number;
  readonly icmpPayload: number;
  readonly overrides: readonly { readonly node: string; readonly protocol: HopProtocol }[];
  /** As a gateway: ask those who dial it to trace the way. */
  readonly requestsHops: boolean;
}

/** Round trips to `node`, or over its path alone, that are too long: `count` samples in a row decide. */
export interface LatencyMonitor {
  readonly node: string;
  readonly path?: string;
  readonly maxLatencyMs: number;
  readonly triggerCount: number;
  readonly recoverCount: number;
  readonly isCritical: boolean;
}

/** The section as a node uses it: everything filled in. Names are in lower case as the documents have them. */
export interface Gateway {
  /** Absent when it is off or cannot be used. */
  readonly server?: GatewayServer;
  /** The gateway is enabled and its settings are invalid: the previous one stays. */
  readonly isServerRejected: boolean;
  readonly clients: readonly GatewayClient[];
  readonly paths: readonly GatewayPath[];
  readonly connectToPublic: boolean;
  /** Limit of all tunnels together, in and out; absent means unlimited. */
  readonly ingressBitsPerSecond?: number;
  readonly egressBitsPerSecond?: number;
  readonly udpEnabled: boolean;
  readonly hops: HopMonitoring;
  readonly latency: { readonly mode: LatencyMode; readonly monitors: readonly LatencyMonitor[] };
  /** To reach `to`, use the tunnel to `via`; the lowest metric first. */
  readonly routes: readonly { readonly to: string; readonly via: string; readonly metric: number }[];
  /** Pairs of nodes it may relay; absent means everybody. */
  readonly acls?: readonly { readonly source: string; readonly dest: string }[];
}

export interface GatewayContext {
  /** Agents have no server, and try UDP by default. */
  readonly nodeType: NodeType;
}

export interface NormalisedGateway {
  readonly gateway: Gateway;
  readonly rejected: readonly ConfigIssue[];
  readonly notices: readonly ConfigIssue[];
}

const UDP_PORT = 8443;
/** Samples in a row, one every 20 s. */
const LATENCY_COUNT = 6;

/** Normalizes the section by field and item: unusable ones are rejected, the rest applies. */
export function normaliseGateway(raw: unknown, { nodeType }: GatewayContext): NormalisedGateway {
  const reader = new GatewayReader(raw);
  const gateway = gatewayOf(reader, nodeType);
  return { gateway, rejected: reader.rejected, notices: reader.notices };
}

function gatewayOf(reader: GatewayReader, nodeType: NodeType): Gateway {
  const { fields } = reader;
  const paths = reader.items("paths", GatewayPathItem, ["port"]);
  const gateway: Gateway = {
    ...serverOf(reader, nodeType),
    clients: uniqueBy(reader, "name", reader.items("clients", GatewayClientItem, []), ({ name }) => name)
      .map(({ item: { name, enabled } }) => ({ name, enabled }))
      .toSorted(byText(({ name }) => name)),
    paths: uniqueBy(reader, "id", paths, ({ id }) => id).map(({ item }) => pathOf(item)),
    connectToPublic: fields.connectToPublic ?? true,
    ...limit(reader, "maxmbps", "ingressBitsPerSecond"),
    ...limit(reader, "maxClientWriteMbps", "egressBitsPerSecond"),
    udpEnabled: fields.udpEnabled ?? nodeType === "Agent",
    hops: hopsOf(reader),
    latency: { mode: fields.latencyMonitorMode ?? "none", monitors: monitorsOf(reader, paths) },
    routes: reader
      .items("routes", GatewayRouteItem, ["metric"])
      .map(({ item: { route, dest, metric } }) => ({ to: route, via: dest, metric }))
      .toSorted((a, b) => a.metric - b.metric),
    ...aclsOf(reader),
  };
  if (gateway.server?.type === "private" && !gateway.clients.some(({ enabled }) => enabled)) {
    reader.note("E_DEPENDENCY", SECTION, "clients", "lists nobody, so that nobody can connect to this private gateway");
  }
  return gateway;
}

function serverOf(reader: GatewayReader, nodeType: NodeType): Pick<Gateway, "server" | "isServerRejected"> {
  const { fields } = reader;
  const { enabled = false, type, host, port, udpEnabled = false, udpPort = UDP_PORT, cert } = fields;
  const isMisnamed = !isPresent(reader.raw["host"]) && isPresent(reader.raw["ip"]);
  if (isMisnamed)
    reader.conflict("E_REQUIRED", SECTION, "ip", "is not a field: the address that others dial is called host");
  if (!enabled) return { isServerRejected: reader.isBad("enabled") };
  if (nodeType === "Agent") {
    reader.note("E_UNSUPPORTED_ON_AGENT", SECTION, "enabled", "ignored: agents are no gateways");
    return { isServerRejected: false };
  }
  for (const name of ["type", "host", "port"] as const) {
    if (reader.has(name) || (name === "host" && isMisnamed)) continue;
    reader.conflict("E_REQUIRED", SECTION, name, "is required when enabled is true");
  }
  if (type === undefined || host === undefined || port === undefined || reader.isBad("udpPort")) {
    return { isServerRejected: true };
  }
  if (cert !== undefined)
    reader.note(
      "E_UNSUPPORTED",
      SECTION,
      "cert",
      "ignored: a gateway proves itself by its own key, without a certificate",
    );
  return { server: { type, host: host.toLowerCase(), port, udpEnabled, udpPort }, isServerRejected: false };
}

function pathOf(item: z.output<typeof GatewayPathItem>): GatewayPath {
  return {
    id: item.id,
    node: item.node,
    host: item.host,
    port: item.port,
    ...defined({ local: item.local }),
    isDefault: item.default ?? false,
    enabled: item.enabled ?? true,
  };
}

function limit<Name extends string>(
  reader: GatewayReader,
  field: "maxmbps" | "maxClientWriteMbps",
  name: Name,
): Partial<Record<Name, number>> {
  const mbps = reader.fields[field];
  if (mbps === undefined) return {};
  if (mbps >= 1) return { [name]: Math.round(mbps * 1_000_000) } as Record<Name, number>;
  reader.note("E_RANGE", SECTION, field, "is below 1, which is unlimited");
  return {};
}

function hopsOf(reader: GatewayReader): HopMonitoring {
  const { fields } = reader;
  const { monitorHops, monitorGateway, monitorHopsMode } = fields;
  const overrides = reader.items("monitorHopsOverrides", HopOverrideItem, []);
  return {
    mode: monitorHopsMode ?? ((monitorHops ?? monitorGateway) === true ? "always" : "peer-request"),
    protocol: fields.monitorHopsProtocol ?? "syn",
    intervalSeconds: fields.monitorHopsInterval ?? 20,
    synPayload: fields.monitorHopsSynPayload ?? 0,
    icmpPayload: fields.monitorHopsIcmpPayload ?? 56,
    overrides: uniqueBy(reader, "node", overrides, ({ node }) => node).map(({ item: { node, protocol } }) => ({
      node,
      protocol,
    })),
    requestsHops: fields.requestClientsMonitorHops ?? false,
  };
}

function monitorsOf(reader: GatewayReader, paths: readonly Found<{ readonly id: string }>[]): LatencyMonitor[] {
  const known = new Set(paths.map(({ item }) => item.id));
  return reader
    .items("latencyMonitors", LatencyMonitorItem, ["maxLatency", "triggerCount", "recoverCount"])
    .flatMap(({ item, at }) => {
      if (item.path !== undefined && !known.has(item.path)) {
        // Unreadable paths are unknown.
        if (!reader.isUnreadable("gateway.paths"))
          reader.conflict("E_DEPENDENCY", at, "path", `there is no path ${item.path}`);
        return [];
      }
      return monitorOf(item);
    });
}

function monitorOf(item: z.output<typeof LatencyMonitorItem>): LatencyMonitor {
  return {
    node: item.node,
    ...defined({ path: item.path }),
    maxLatencyMs: item.maxLatency,
    triggerCount: item.triggerCount ?? LATENCY_COUNT,
    recoverCount: item.recoverCount ?? LATENCY_COUNT,
    isCritical: item.critical ?? false,
  };
}

/** A list without a valid entry allows nothing; it does not mean that it is absent. */
function aclsOf(reader: GatewayReader): Pick<Gateway, "acls"> {
  const list = reader.raw["acls"];
  if (!isPresent(list) || (Array.isArray(list) && list.length === 0)) return {};
  const acls = reader.items("acls", GatewayAclItem, []).flatMap(({ item: { source, dest }, at }) => {
    const network = source.includes("/") ? "source" : dest.includes("/") ? "dest" : undefined;
    if (network === undefined) return { source, dest };
    reader.note("E_ENUM", at, network, "is a network, which a relay between nodes does not see: allows nothing");
    return [];
  });
  return { acls };
}

/** Rejects the later of two items with one name. */
function uniqueBy<T>(
  reader: GatewayReader,
  field: string,
  found: readonly Found<T>[],
  keyOf: (item: T) => string,
): Found<T>[] {
  const first = new Map<string, string>();
  return found.filter(({ item, at }) => {
    const key = keyOf(item);
    const other = first.get(key);
    if (other === undefined) first.set(key, at.path);
    else reader.conflict("E_NAME_DUPLICATE", at, field, `${key} is in ${other} already`);
    return other === undefined;
  });
}

const byText =
  <T>(textOf: (item: T) => string) =>
  (a: T, b: T): number =>
    textOf(a) < textOf(b) ? -1 : 1;
