import { z } from "zod";
import { parseCidr } from "../../lib/net/cidr.ts";
import { CaptureFilter } from "./capture.ts";
import { StorePath } from "./data-store.ts";
import { PathId } from "../overlay/mesh.ts";
import { Host, IpAddress, LinkName, Port, Text64, Text128, Text253 } from "../values/values.ts";

/** The body of an event that takes none. */
export const NoBody = z.strictObject({}).meta({ id: "NoBody", description: "A body without members" });
export type NoBody = z.infer<typeof NoBody>;

export const TgPing = z
  .strictObject({
    host: Host,
    source: IpAddress.optional(),
    iface: LinkName.optional().meta({ description: "The interface to leave by" }),
    count: z.int().min(1).max(600).optional(),
  })
  .meta({ id: "TgPing", description: "Body of `tg-ping`" });
export type TgPing = z.infer<typeof TgPing>;

export const TgNc = z
  .strictObject({ host: Host, port: Port, source: IpAddress.optional() })
  .meta({ id: "TgNc", description: "Body of `tg-nc`" });
export type TgNc = z.infer<typeof TgNc>;

export const GatewayRoutes = z
  .strictObject({ showClusterRoutes: z.boolean().default(false), enableLog: z.boolean().default(true) })
  .meta({ id: "GatewayRoutes", description: "Body of `gateway-routes`" });
export type GatewayRoutes = z.infer<typeof GatewayRoutes>;

/** Another node, by FQDN, name or uid, and by which path to a gateway; without a path by the best. */
const Peer = {
  dest: Host.meta({ description: "The other node: its FQDN, name or uid" }),
  gwPath: PathId.optional().meta({ description: "The path of this node's gateway section; empty is the built-in one" }),
};

export const GatewayPing = z
  .strictObject({
    ...Peer,
    interval: z.int().min(1).max(60).default(5).meta({ description: "Whole seconds between two probes" }),
    size: z.int().min(8).max(65_000).default(64).meta({ description: "Bytes of a probe" }),
    sendJson: z.boolean().default(false),
    count: z.int().min(1).max(600).optional(),
  })
  .meta({ id: "GatewayPing", description: "Body of `gateway-ping`" });
export type GatewayPing = z.infer<typeof GatewayPing>;

export const GatewayPerf = z
  .strictObject({
    ...Peer,
    bytes: z.int().min(1).max(1_000_000_000).default(10_000_000),
    messageSize: z.int().min(1).max(1_048_576).default(50_000).meta({ description: "Bytes of a message" }),
    windowSize: z.int().min(1024).max(16_777_216).default(1_000_000).meta({ description: "Bytes under way at a time" }),
  })
  .meta({ id: "GatewayPerf", description: "Body of `gateway-perf`" });
export type GatewayPerf = z.infer<typeof GatewayPerf>;

/** The node holds `options` to the flags that cannot do harm. */
export const TgMtrBody = z
  .strictObject({
    hostname: Host,
    options: z.string().max(256).prefault("").meta({ description: "Flags of mtr(8), divided by spaces" }),
    cols: z.int().min(20).max(500).default(80).meta({ description: "Width of the terminal" }),
  })
  .meta({ id: "TgMtr", description: "Body of `tg-mtr`" });

/** The node holds `filter` to the flags that cannot do harm. */
export const TgTracerouteBody = z
  .strictObject({
    host: Host,
    filter: z.string().max(256).prefault("-n").meta({ description: "Flags of traceroute(8), divided by spaces" }),
    iface: LinkName.optional(),
  })
  .meta({ id: "TgTraceroute", description: "Body of `tg-traceroute`" });

export const SpeedTest = z
  .strictObject({ action: z.enum(["download", "upload", "both"]).default("both") })
  .meta({ id: "SpeedTest", description: "Body of `speed-test`" });
export type SpeedTest = z.infer<typeof SpeedTest>;

export const NetworkKeep = z
  .strictObject({})
  .meta({ id: "NetworkKeep", description: "Body of `network-keep`: nothing to say" });
export type NetworkKeep = z.infer<typeof NetworkKeep>;

export const NetworkRevert = z
  .strictObject({})
  .meta({ id: "NetworkRevert", description: "Body of `network-revert`: nothing to say" });
export type NetworkRevert = z.infer<typeof NetworkRevert>;

export const NodeUpgrade = z
  .strictObject({
    skipUnattended: z
      .boolean()
      .default(false)
      .meta({ description: "Leave the packages of the operating system as they are" }),
    stageOnly: z
      .boolean()
      .optional()
      .meta({ description: "Fetch, verify and unpack the release, and leave the switch to a later upgrade" }),
  })
  .meta({ id: "NodeUpgrade", description: "Body of `node-upgrade`" });
export type NodeUpgrade = z.infer<typeof NodeUpgrade>;

export const NodePushLogs = z
  .strictObject({
    inline: z
      .boolean()
      .default(false)
      .meta({ description: "Give the archive in the answer, in base64, and leave nothing of it on the node" }),
    file: StorePath.optional().meta({
      description:
        "Where it goes in the data store, instead of `holdfast-bundles/`, which keeps the newest three; not on agents",
    }),
    maxBytes: z
      .int()
      .min(65_536)
      .max(50_000_000)
      .default(10_000_000)
      .meta({ description: "Bytes of its content, unpacked; the largest logs are cut first" }),
  })
  .refine(({ inline, file }) => !inline || file === undefined, {
    path: ["file"],
    message: "is not for an archive that comes in the answer",
  })
  .meta({ id: "NodePushLogs", description: "Body of `node-push-logs`" });
export type NodePushLogs = z.infer<typeof NodePushLogs>;

export const TgArping = z
  .strictObject({ iface: LinkName, host: z.ipv4().meta({ description: "The address that is asked for" }) })
  .meta({ id: "TgArping", description: "Body of `tg-arping`" });
export type TgArping = z.infer<typeof TgArping>;

export const TgTcpdump = z
  .strictObject({
    iface: LinkName,
    filter: CaptureFilter.default("").meta({ description: "Which packets, by pcap-filter(7)" }),
    packetCount: z.int().min(0).max(10_000).default(0).meta({ description: "0: until it is cancelled" }),
    maxBytes: z.int().min(1024).max(50_000_000).default(1_048_576).meta({ description: "Bytes of text" }),
    snaplen: z.int().min(34).max(128).default(96).meta({ description: "Bytes of a packet that are looked at" }),
    file: StorePath.optional().meta({
      description: "A file of the data store that gets the lines too, there once the capture has ended; not on agents",
    }),
  })
  .meta({ id: "TgTcpdump", description: "Body of `tg-tcpdump`" });
export type TgTcpdump = z.infer<typeof TgTcpdump>;

/** An address or a block; the empty text of an empty field is none. */
const Block = z
  .string()
  .max(49)
  .transform((text, context) => {
    if (text === "") return undefined;
    const block = parseCidr(text);
    if (block === undefined) context.addIssue({ code: "custom", message: "must be an IP address or a CIDR" });
    return block?.text;
  });

/** 0 is what an empty field is sent as. */
const PortOrNone = z.int().min(0).max(65_535).default(0);

export const Flows = z
  .strictObject({
    action: z.enum(["read", "delete"]).default("read"),
    protocol: z.enum(["icmp", "tcp", "udp", "any"]).default("any"),
    source: Block.optional().meta({ description: "Address or CIDR of the side that began the flow" }),
    dest: Block.optional().meta({ description: "Address or CIDR that it was sent to" }),
    sourcePort: PortOrNone,
    destPort: PortOrNone,
    containerId: Text128.default(""),
    networkId: z.union([z.int().min(0), Text64]).default(0),
    confirm: z.boolean().default(false).meta({ description: "Needed to delete without any filter" }),
  })
  .refine(({ protocol, sourcePort, destPort }) => protocol !== "icmp" || sourcePort + destPort === 0, {
    path: ["protocol"],
    message: "icmp has no ports",
  })
  .meta({ id: "Flows", description: "Body of `flows`" });
export type Flows = z.infer<typeof Flows>;

/** Free text to compare with; empty is any. */
const Wanted = Text128.default("");

export const NatHits = z
  .strictObject({
    action: z.enum(["GET", "RESET", "RESET_ALL"]),
    trackerID: Wanted,
    networkName: Wanted,
    interfaceName: Wanted,
    insideCIDR: Wanted,
    outsideCIDR: Wanted,
    networkGroup: Wanted,
  })
  .meta({ id: "NatHits", description: "Body of `nat-hits`" });
export type NatHits = z.infer<typeof NatHits>;

/** Lines of output that are asked for at most. */
export const CONTAINER_LOG_LINES_MAX = 10_000;

export const ContainerLogs = z
  .strictObject({
    container: z.string().min(1).max(253).meta({ description: "The container's name in the configuration" }),
    follow: z
      .boolean()
      .default(true)
      .meta({ description: "Go on with new output; not where the answer is waited for" }),
    lines: z.int().min(0).max(CONTAINER_LOG_LINES_MAX).default(100).meta({ description: "Lines from the end" }),
  })
  .meta({ id: "ContainerLogs", description: "Body of `container-logs`" });
export type ContainerLogs = z.infer<typeof ContainerLogs>;

/** Body of the event with the name of a container. */
export const ContainerCommand = z
  .strictObject({
    cmd_action: z.enum(["start", "stop", "restart"]),
    name: Text253.optional().meta({ description: "The container's name again; not looked at" }),
  })
  .meta({ id: "ContainerCommand", description: "Body of the event that is called as a container is" });
export type ContainerCommand = z.infer<typeof ContainerCommand>;

export const ContainerStatusRequest = z
  .strictObject({
    container: z.string().min(1).max(253).optional().meta({ description: "Only the one of this name" }),
  })
  .meta({ id: "ContainerStatusRequest", description: "Body of `container-status`" });
export type ContainerStatusRequest = z.infer<typeof ContainerStatusRequest>;

export const ContainerImageRequest = z
  .discriminatedUnion("action", [
    z.strictObject({ action: z.literal("list") }),
    z.strictObject({
      action: z.literal("delete"),
      image: z.string().min(3).max(512).meta({ description: "Repository and tag, joined by a slash" }),
    }),
  ])
  .meta({ id: "ContainerImageRequest", description: "Body of `container-image`" });
export type ContainerImageRequest = z.infer<typeof ContainerImageRequest>;

const Equal = Text253.default("*");

export const NodeDebug = z
  .strictObject({
    plugin: z
      .string()
      .min(1)
      .max(64)
      .default("any")
      .meta({ description: "A component of the agent, or a section; `any` is all" }),
    local: Equal.meta({ description: "Only lines of flows of this node; `*` is any" }),
    peer: Equal.meta({ description: "Only lines of flows to or from this node; `*` is any" }),
    service: Equal.meta({ description: "Only lines of flows to this service; `*` is any" }),
  })
  .meta({ id: "NodeDebug", description: "Body of `node-debug`" });
export type NodeDebug = z.infer<typeof NodeDebug>;
