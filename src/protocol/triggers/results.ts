import { z } from "zod";
import { DataStoreListing, DataStoreTasks, ImageInfo, TaskStarted } from "./data-store.ts";
import { ImagesReport } from "../local/containers.ts";
import { JsonObject, Text64, UnixSeconds } from "../values/values.ts";

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

export const Refused = z.object({ error: z.string() });

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

export const FlowsAnswer = z.union([
  z.object({
    result: z.partialRecord(z.enum(["icmp", "tcp", "udp"]), z.array(JsonObject)),
    total: Count,
    truncated: z.literal(true).optional(),
  }),
  z.object({ result: z.literal("success"), deleted: Count }),
]);

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

export const ContainerStatusAnswer = z.union([
  z.record(
    z.string(),
    z.object({
      status: z.enum(["INITIALIZING", "RUNNING", "STOPPED"]),
      imageName: z.string(),
      imageId: z.string(),
      health: Text64.optional(),
    }),
  ),
  Refused,
]);

/** Answer of the event with a container's name, unless it is a watched start of an on-demand container, which streams output. */
export const ContainerCommandAnswer = z.union([z.object({ message: z.string() }), ToolOutput]);

/** Answer of `container-image`: the images, or what was deleted. */
export const ContainerImageAnswer = z.union([ImagesReport, z.object({ success: z.string() }), Refused]);

export const DataStoreAnswer = z.union([DataStoreListing, DataStoreTasks, TaskStarted, ImageInfo, z.strictObject({})]);

/** Answer of `tg-nc`, which prints one line. */
export const TgNcAnswer = z.object({ output: WholeOutput.shape.output.omit({ truncated: true }) });
