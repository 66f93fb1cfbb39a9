import { isIPv4 } from "node:net";
import { z } from "zod";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { GatewayType } from "./domain-items.ts";
import { Requires } from "../../values/features.ts";
import { Fqdn } from "../../values/values.ts";
import { decimal, Ipv4OrName, ItemPort, NodeRef, oneLine, says, whole } from "../common/fields.ts";

/** Most entries of each list in the section. */
export const GATEWAY_LIMITS = {
  clients: 10_000,
  paths: 512,
  routes: 10_000,
  acls: 10_000,
  monitorHopsOverrides: 1024,
  latencyMonitors: 1024,
} as const;

/** Trace method of a gateway's hops: TCP SYN, ICMP echo, or a TCP session of small segments. */
export const HopProtocol = z.enum(["syn", "icmp", "sack"], says("must be one of syn, icmp, sack"));
export type HopProtocol = z.infer<typeof HopProtocol>;
/** Condition under which a node traces the path to its gateways. */
export const HopMode = z.enum(["always", "peer-request", "never"], says("must be one of always, peer-request, never"));
export type HopMode = z.infer<typeof HopMode>;
/** Condition under which latency monitors make a cluster member unhealthy. */
export const LatencyMode = z.enum(["none", "any", "all"], says("must be one of none, any, all"));
export type LatencyMode = z.infer<typeof LatencyMode>;

const Flag = z.boolean(says("must be true or false"));
const Rate = decimal(0, 1_000_000).meta({ description: "Mbit/s; below 1 is unlimited" });
const Ipv4 = z.string(says("must be text")).refine(isIPv4, says("must be an IPv4 address"));
/** The id of a path: any text for people that fits on a line. */
const PathName = oneLine(128);

/** The fields of the section that are not lists. */
export const gatewayScalars = {
  enabled: Flag.meta({ description: "Run the TLS server that other nodes dial" }),
  type: z
    .enum(GatewayType.options, says("must be one of public, private, hub"))
    .optional()
    .meta({ description: "Who may dial it" }),
  host: Ipv4OrName.optional().meta({ description: "What other nodes dial: IPv4 address or DNS name" }),
  port: ItemPort.optional().meta({ description: "TCP port it listens on and advertises" }),
  udpEnabled: Flag.optional(),
  udpPort: ItemPort.optional().meta({ description: "8443 by default" }),
  cert: Fqdn.optional().meta({ description: "FQDN of an uploaded certificate; stored without effect" }),
  maxmbps: Rate.optional().meta({ description: "All that comes in over tunnels, Mbit/s; below 1 is unlimited" }),
  maxClientWriteMbps: Rate.optional().meta({
    description: "All that goes out over tunnels, Mbit/s; below 1 is unlimited",
  }),
  connectToPublic: Flag.optional().meta({ description: "Dial public gateways; true by default" }),
  monitorHops: Flag.optional().meta({ description: "Older form of `monitorHopsMode`: true is `always`" }),
  monitorGateway: Flag.optional().meta({ description: "Another name of `monitorHops`" }),
  monitorHopsMode: HopMode.optional(),
  requestClientsMonitorHops: Flag.optional().meta({ description: "Ask dialling nodes to trace the path" }),
  monitorHopsProtocol: HopProtocol.optional(),
  monitorHopsInterval: decimal(5, 86_400).optional().meta({ description: "Seconds; 20 by default" }),
  monitorHopsSynPayload: whole(0, 1440).optional().meta({ description: "Bytes; 0 by default" }),
  monitorHopsIcmpPayload: whole(0, 1440).optional().meta({ description: "Bytes; 56 by default" }),
  latencyMonitorMode: LatencyMode.optional(),
  mesh: z.string(says("must be text")).max(253).optional().meta({ description: "Kept and not used" }),
} as const;

/** Client of a private gateway: a node, or every member of a cluster. */
export const GatewayClientItem = z.looseObject(
  { name: NodeRef, enabled: Flag, requires: Requires },
  says("must be an object"),
);

/** A configured path from this node to one gateway. */
export const GatewayPathItem = z.looseObject(
  {
    id: PathName,
    node: NodeRef,
    host: Ipv4,
    port: ItemPort,
    local: Ipv4.optional(),
    default: Flag.optional(),
    enabled: Flag.optional(),
    requires: Requires,
  },
  says("must be an object"),
);

/** Route through a gateway to a node or cluster without a direct tunnel. */
export const GatewayRouteItem = z.looseObject(
  {
    route: z
      .string(says("must be text"))
      .refine((text) => !text.includes("/"), {
        error: "is a network, and must be the name of a node or a cluster: networks are routed by virtual networks",
        abort: true,
      })
      .pipe(NodeRef),
    dest: NodeRef,
    metric: whole(0, 1_000_000),
    requires: Requires,
  },
  says("must be an object"),
);

const AclEnd = z
  .string(says("must be text"))
  .max(253)
  .refine(
    (text) => NodeRef.safeParse(text).success || parseCidr(text) !== undefined,
    says("must be the FQDN of a node, or a CIDR"),
  );

/** A pair of nodes that a gateway may relay. */
export const GatewayAclItem = z.looseObject(
  { source: AclEnd, dest: AclEnd, requires: Requires },
  says("must be an object"),
);

/** Override of hop tracing for one gateway. */
export const HopOverrideItem = z.looseObject(
  { node: NodeRef, protocol: HopProtocol, requires: Requires },
  says("must be an object"),
);

/** Latency monitor of a gateway or of one path. */
export const LatencyMonitorItem = z.looseObject(
  {
    node: NodeRef,
    path: PathName.optional(),
    maxLatency: decimal(1, 600_000).meta({ description: "Milliseconds" }),
    triggerCount: whole(1, 10_000).optional(),
    recoverCount: whole(1, 10_000).optional(),
    critical: Flag.optional(),
    requires: Requires,
  },
  says("must be an object"),
);

const listOf = <T extends z.ZodType>(item: T, name: keyof typeof GATEWAY_LIMITS) =>
  z
    .array(item, says("must be an array"))
    .max(GATEWAY_LIMITS[name], says(`must be at most ${GATEWAY_LIMITS[name]}`))
    .optional();

/** The fields of the section that are lists. */
export const gatewayLists = {
  clients: listOf(GatewayClientItem, "clients").meta({ description: "Who may dial a private gateway" }),
  paths: listOf(GatewayPathItem, "paths").meta({ description: "More ways from this node to gateways" }),
  routes: listOf(GatewayRouteItem, "routes").meta({ description: "Which gateway leads to a node or a cluster" }),
  acls: listOf(GatewayAclItem, "acls").meta({ description: "What it may relay; empty is everything of the domain" }),
  monitorHopsOverrides: listOf(HopOverrideItem, "monitorHopsOverrides"),
  latencyMonitors: listOf(LatencyMonitorItem, "latencyMonitors"),
} as const;
