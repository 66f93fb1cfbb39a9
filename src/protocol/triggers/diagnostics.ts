import { z } from "zod";
import { Health, Status } from "../local/answers.ts";
import { PathId } from "../overlay/mesh.ts";
import { Host, Text64, Text253, Text512, Text4096, UnixMilliseconds } from "../values/values.ts";

const Count = z.int().min(0);

/** Body of `errors`. */
export const ErrorsRequest = z
  .strictObject({
    startupOnly: z.boolean().default(false).meta({ description: "Only what went wrong while the agent started" }),
  })
  .meta({ id: "ErrorsRequest", description: "Body of `errors`" });
export type ErrorsRequest = z.infer<typeof ErrorsRequest>;

const REMOTE = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]]+)):(\d{1,5})$/;

/** Body of `outbound-connection-check`. */
export const OutboundConnectionCheck = z
  .strictObject({
    remoteAddress: z
      .string()
      .max(300)
      .refine((text) => remoteOf(text) !== undefined, "must be host:port, an IPv6 address in brackets")
      .meta({ description: "`host:port`; an IPv6 address in brackets" }),
  })
  .meta({ id: "OutboundConnectionCheck", description: "Body of `outbound-connection-check`" });
export type OutboundConnectionCheck = z.infer<typeof OutboundConnectionCheck>;

/** Splits `host:port`; undefined for other text. */
export function remoteOf(text: string): { readonly host: string; readonly port: number } | undefined {
  const [, six, name, digits] = REMOTE.exec(text) ?? [];
  const host = Host.safeParse(six ?? name).data;
  const port = Number(digits);
  return host === undefined || port < 1 || port > 65_535 ? undefined : { host, port };
}

/** Body of `gateway-latency`. */
export const GatewayLatency = z
  .strictObject({ gateway: Host.meta({ description: "The gateway: its FQDN, name or uid" }) })
  .meta({ id: "GatewayLatency", description: "Body of `gateway-latency`" });
export type GatewayLatency = z.infer<typeof GatewayLatency>;

/** Body of `gateway-traceroute` and `gateway-mtr`. */
export const GatewayTrace = z
  .strictObject({
    dest: Host.meta({ description: "The gateway: its FQDN, name or uid" }),
    gwPath: PathId.optional().meta({
      description: "The path of this node's gateway section; empty is the built-in one",
    }),
  })
  .meta({ id: "GatewayTrace", description: "Body of `gateway-traceroute` and `gateway-mtr`" });
export type GatewayTrace = z.infer<typeof GatewayTrace>;

export const NodeStatusAnswer = z
  .object({
    services: z.record(Text253, Text64).meta({ description: "State of each unit; empty outside systemd" }),
    cpu: z.object({ load: z.number().min(0) }),
    memory: z.object({ totalBytes: Count, availableBytes: Count, usedPercent: z.number().min(0).max(100) }),
    disk: z.object({ totalBytes: Count, freeBytes: Count, usedPercent: z.number().min(0).max(100) }),
    uptimeSeconds: z.number().min(0).meta({ description: "Of the machine" }),
    status: Status,
    health: Health,
  })
  .meta({ id: "NodeStatusAnswer" });
export type NodeStatusAnswer = z.infer<typeof NodeStatusAnswer>;

const Traffic = z.object({ bytes: Count, errors: Count, dropped: Count });

export const NetworkStatusAnswer = z
  .object({
    interfaces: z.array(
      z.object({
        name: Text64,
        state: Text64.meta({ description: "RFC 2863, in capitals" }),
        addresses: z.array(Text64),
        mac: Text64.optional(),
        mtu: Count.optional(),
        speedMbps: Count.optional(),
        duplex: z.enum(["full", "half"]).optional(),
        carrier: z.boolean().optional(),
        rx: Traffic.optional(),
        tx: Traffic.optional(),
      }),
    ),
    nameServers: z.array(Text64),
    truncated: z.literal(true).optional(),
  })
  .meta({ id: "NetworkStatusAnswer" });
export type NetworkStatusAnswer = z.infer<typeof NetworkStatusAnswer>;

export const ErrorsAnswer = z
  .object({
    errors: z
      .array(
        z.object({
          time: UnixMilliseconds,
          component: Text64,
          code: Text64.optional(),
          message: Text4096,
          startup: z.boolean().meta({ description: "Whether it happened while the agent started" }),
        }),
      )
      .max(200),
  })
  .meta({ id: "ErrorsAnswer" });
export type ErrorsAnswer = z.infer<typeof ErrorsAnswer>;

export const DnsHealthAnswer = z
  .object({
    success: z.boolean().meta({ description: "Whether at least one server resolves the name" }),
    name: Text253.meta({
      description: "The name that was asked for: the control plane's or, behind a proxy, the proxy's",
    }),
    reason: Text64.optional(),
    servers: z.array(z.object({ ip: Text64, success: z.boolean(), reason: Text64.optional() })),
  })
  .meta({ id: "DnsHealthAnswer" });
export type DnsHealthAnswer = z.infer<typeof DnsHealthAnswer>;

export const RepoConnectivityAnswer = z
  .object({ repositories: z.array(z.object({ url: Text4096, success: z.boolean(), reason: Text64.optional() })) })
  .meta({ id: "RepoConnectivityAnswer" });
export type RepoConnectivityAnswer = z.infer<typeof RepoConnectivityAnswer>;

export const OutboundConnectionAnswer = z
  .object({
    success: z.boolean(),
    remoteAddress: z.string(),
    latencyMs: z.number().min(0).optional().meta({ description: "Of the connection, its name included" }),
    error: Text512.optional(),
  })
  .meta({ id: "OutboundConnectionAnswer" });
export type OutboundConnectionAnswer = z.infer<typeof OutboundConnectionAnswer>;

export const GatewayLatencyAnswer = z
  .object({
    gateway: Text253,
    hops: z.array(
      z.object({
        hop: Count,
        ip: Text64,
        latencyMs: z.number().min(0).meta({ description: "The mean of all answers" }),
        minMs: z.number().min(0),
        maxMs: z.number().min(0),
        answers: Count,
      }),
    ),
  })
  .meta({ id: "GatewayLatencyAnswer" });
export type GatewayLatencyAnswer = z.infer<typeof GatewayLatencyAnswer>;
