import { z } from "zod";
import { DataStoreListing, DataStoreTasks, ImageInfo, TaskStarted } from "./data-store.ts";
import { ImagesReport } from "../local/containers.ts";
import { Text64, UnixSeconds } from "../values/values.ts";

const Count = z.int().min(0);

/** Answer of an event that runs a tool, to a caller that waits: all of its output as one text. */
export const WholeOutput = z
  .object({
    output: z.object({
      message: z.string(),
      exitCode: z.string().regex(/^\d+$/).meta({ description: "The exit status of the tool" }),
      truncated: z.boolean().meta({ description: "Whether more was printed than one message holds" }),
    }),
  })
  .meta({ id: "WholeOutput" });

/** Result of the same event when its output is watched: the output itself came in `trigger.progress`. */
export const WatchedOutput = z
  .object({ exitCode: z.int(), truncated: z.boolean(), durationMs: Count })
  .meta({ id: "WatchedOutput" });

export const ToolOutput = z.union([WholeOutput, WatchedOutput]).meta({ id: "ToolOutput" });

/** Answer of an event that starts an operation: what it will do or, after a restart, what it did. */
export const Announced = z.object({ output: z.object({ message: z.string(), startedAt: z.number().optional() }) });

export const GatewayRoutesAnswer = z.object({
  output: z.object({
    available: Count,
    connected: Count,
    domains: z.array(
      z.object({
        name: z.string(),
        routes: z.array(
          z.object({
            name: z.string(),
            path: z.string(),
            rtt: z.number().optional().meta({ description: "Milliseconds" }),
            connected: z.boolean(),
            client: z.boolean().meta({ description: "Whether this node dials" }),
            udp: z.boolean(),
            ip: z.string().optional(),
            port: z.int().optional(),
            receivedMbps: z.number(),
            sentMbps: z.number(),
            bytesReceived: Count,
            bytesSent: Count,
          }),
        ),
      }),
    ),
    truncated: z.literal(true).optional(),
  }),
});

/** A flow with the platform's field names; addresses and ports of its first packet. */
export const FlowRow = z
  .object({
    sip: z.string(),
    dip: z.string(),
    // Not an enum: generators of clients make invalid types of one under a name of one letter.
    p: z.string().meta({ description: "Protocol: `tcp`, `udp` or `icmp`" }),
    sport: Count.optional(),
    dport: Count.optional(),
    lid: Count.optional().meta({ description: "ICMP: the id" }),
    nid: Count.optional().meta({ description: "ICMP: the id after translation" }),
    state: z.string().meta({ description: "Of TCP; else `ESTABLISHED`" }),
    br: Count.optional().meta({ description: "Bytes received; absent if not counted" }),
    bw: Count.optional().meta({ description: "Bytes sent; absent if not counted" }),
    con: Count.optional().meta({ description: "Seconds since its start; absent if unknown" }),
    def: z.boolean().meta({ description: "Whether it is denied" }),
    meta: z
      .object({
        reply: z.record(z.string(), z.union([z.string(), Count])).optional(),
        connector: z.string().optional(),
        service: z.string().optional(),
        peer: z.string().optional(),
        backend: z.string().optional(),
      })
      .loose()
      .optional(),
  })
  .meta({ id: "FlowRow" });
export type FlowRow = z.infer<typeof FlowRow>;

export const FlowList = z.object({
  result: z.object({ icmp: z.array(FlowRow), tcp: z.array(FlowRow), udp: z.array(FlowRow) }),
  total: Count,
  truncated: z.literal(true).optional(),
});
export type FlowList = z.infer<typeof FlowList>;
export const FlowsDeleted = z.object({ result: z.literal("success"), deleted: Count });
export const FlowsAnswer = z.union([FlowList, FlowsDeleted]);

export const NatHitsAnswer = z.union([
  z.object({
    nats: z.array(
      z.object({
        trackerID: z.string(),
        type: z.enum(["inside", "outside"]),
        networkName: z.string().meta({ description: "The VRF; empty for the default context" }),
        interfaceName: z.string(),
        insideCIDR: z.string(),
        outsideCIDR: z.string(),
        networkGroup: z.string(),
        hits: Count,
        initialHit: UnixSeconds.nullable(),
        latestHit: UnixSeconds.nullable(),
      }),
    ),
    total: Count,
    truncated: z.literal(true).optional(),
  }),
  z.object({ reset: Count }),
]);

/** Containers by name. */
export const ContainerStatusAnswer = z.record(
  z.string(),
  z.object({
    status: z.enum(["INITIALIZING", "RUNNING", "STOPPED"]),
    imageName: z.string().meta({ description: "Repository and tag, joined by a slash" }),
    imageId: z.string().meta({ description: "12 hexadecimal digits; empty without an image" }),
    health: Text64.optional(),
  }),
);

/** Answer of the event with a container's name, unless it is a watched start of an on-demand container, which streams output. */
export const ContainerCommandAnswer = z.union([z.object({ message: z.string() }), ToolOutput]);

/** Answer of `container-image`: the images, or what was deleted, or why an image was not deleted. */
export const ContainerImageAnswer = z.union([
  ImagesReport,
  z.object({ success: z.string() }),
  z.object({ error: z.string() }),
]);

export const DataStoreAnswer = z.union([DataStoreListing, DataStoreTasks, TaskStarted, ImageInfo, z.strictObject({})]);

/** Answer of `tg-nc`, which prints one line. */
export const TgNcAnswer = z.object({ output: WholeOutput.shape.output.omit({ truncated: true }) });
