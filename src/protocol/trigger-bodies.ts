import { z } from "zod";
import { PathId } from "./overlay-mesh.ts";
import { ConfigShowRequest, PlanDocument, RollbackRequest } from "./reconcile.ts";
import { Host, IpAddress, LinkName, Port } from "./values.ts";

export const TgPing = z
  .object({ host: Host, source: IpAddress.optional(), count: z.int().min(1).max(600).optional() })
  .meta({ id: "TgPing", description: "Body of `tg-ping`" });
export type TgPing = z.infer<typeof TgPing>;

export const TgNc = z
  .object({ host: Host, port: Port, source: IpAddress.optional() })
  .meta({ id: "TgNc", description: "Body of `tg-nc`" });
export type TgNc = z.infer<typeof TgNc>;

export const GatewayRoutes = z
  .object({ showClusterRoutes: z.boolean().default(false), enableLog: z.boolean().default(true) })
  .meta({ id: "GatewayRoutes", description: "Body of `gateway-routes`" });
export type GatewayRoutes = z.infer<typeof GatewayRoutes>;

/** Another node, by FQDN, name or uid, and by which path to a gateway; without a path by the best. */
const Peer = {
  dest: Host.meta({ description: "The other node: its FQDN, name or uid" }),
  gwPath: PathId.optional().meta({ description: "The path of this node's gateway section; empty is the built-in one" }),
};

export const GatewayPing = z
  .object({
    ...Peer,
    interval: z.int().min(1).max(60).default(5).meta({ description: "Whole seconds between two probes" }),
    size: z.int().min(8).max(65_000).default(64).meta({ description: "Bytes of a probe" }),
    sendJson: z.boolean().default(false),
    count: z.int().min(1).max(600).optional(),
  })
  .meta({ id: "GatewayPing", description: "Body of `gateway-ping`" });
export type GatewayPing = z.infer<typeof GatewayPing>;

export const GatewayPerf = z
  .object({
    ...Peer,
    bytes: z.int().min(1).max(1_000_000_000).default(10_000_000),
    messageSize: z.int().min(1).max(1_048_576).default(50_000).meta({ description: "Bytes of a message" }),
    windowSize: z.int().min(1024).max(16_777_216).default(1_000_000).meta({ description: "Bytes under way at a time" }),
  })
  .meta({ id: "GatewayPerf", description: "Body of `gateway-perf`" });
export type GatewayPerf = z.infer<typeof GatewayPerf>;

/** The node holds `options` to the flags that cannot do harm. */
export const TgMtrBody = z
  .object({
    hostname: Host,
    options: z.string().max(256).prefault("").meta({ description: "Flags of mtr(8), divided by spaces" }),
    cols: z.int().min(20).max(500).default(80).meta({ description: "Width of the terminal" }),
  })
  .meta({ id: "TgMtr", description: "Body of `tg-mtr`" });

/** The node holds `filter` to the flags that cannot do harm. */
export const TgTracerouteBody = z
  .object({
    host: Host,
    filter: z.string().max(256).prefault("-n").meta({ description: "Flags of traceroute(8), divided by spaces" }),
    iface: LinkName.optional(),
  })
  .meta({ id: "TgTraceroute", description: "Body of `tg-traceroute`" });

export const SpeedTest = z
  .object({ action: z.enum(["download", "upload", "both"]).default("both") })
  .meta({ id: "SpeedTest", description: "Body of `speed-test`" });
export type SpeedTest = z.infer<typeof SpeedTest>;

/** The body of each event that needs one, for whoever describes events. */
export const triggerBodies = {
  "gateway-routes": GatewayRoutes,
  "gateway-ping": GatewayPing,
  "gateway-perf": GatewayPerf,
  "tg-mtr": TgMtrBody,
  "tg-ping": TgPing,
  "tg-nc": TgNc,
  "tg-traceroute": TgTracerouteBody,
  "speed-test": SpeedTest,
  plan: PlanDocument,
  rollback: RollbackRequest,
  "config-show": ConfigShowRequest,
} as const;
