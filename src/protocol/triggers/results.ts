import { z } from "zod";
import { PushedLogs } from "../documents/bundle.ts";
import { CaptureAnswer } from "./capture.ts";
import { DataStoreListing, DataStoreTasks, ImageInfo, TaskStarted } from "./data-store.ts";
import {
  DnsHealthAnswer,
  ErrorsAnswer,
  GatewayLatencyAnswer,
  NetworkStatusAnswer,
  NodeStatusAnswer,
  OutboundConnectionAnswer,
  RepoConnectivityAnswer,
} from "./diagnostics.ts";
import { ImagesReport } from "../local/containers.ts";
import { CommitReport } from "../local/commit.ts";
import { PlanReport, RollbackReport, WhyReport } from "../documents/reconcile.ts";
import { UpgradeAnswer } from "../documents/release.ts";
import type { triggerEvents } from "../values/trigger-events.ts";
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

const output = z.union([WholeOutput, WatchedOutput]);

/** Answer of an event that begins something: what it is about to do or, after the restart, what it has done. */
const Announced = z.object({ output: z.object({ message: z.string(), startedAt: z.number().optional() }) });

const Refused = z.object({ error: z.string() });

const GatewayRoutesAnswer = z.object({
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

const FlowsAnswer = z.union([
  z.object({
    result: z.partialRecord(z.enum(["icmp", "tcp", "udp"]), z.array(JsonObject)),
    total: Count,
    truncated: z.literal(true).optional(),
  }),
  z.object({ result: z.literal("success"), deleted: Count }),
]);

const NatHitsAnswer = z.union([
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

const ContainerStatusAnswer = z.union([
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

/** Answer of the event that is called as a container is, unless it is a watched start on demand, which gives output. */
export const ContainerCommandAnswer = z.union([z.object({ message: z.string() }), output]);

/** The result of each event. A failure is an error of one of the codes; a failed measurement is a result. */
export const triggerResults = {
  "config-show": JsonObject,
  /** A terminal has no answer: it is refused, and opened by `stream.open`. */
  "container-exec": z.never(),
  "container-image": z.union([ImagesReport, z.object({ success: z.string() }), Refused]),
  "container-logs": output,
  "tg-capture": CaptureAnswer,
  "node-debug": output,
  "container-status": ContainerStatusAnswer,
  "datastore-manager": z.union([DataStoreListing, DataStoreTasks, TaskStarted, ImageInfo, z.strictObject({})]),
  "dns-health": DnsHealthAnswer,
  errors: ErrorsAnswer,
  flows: FlowsAnswer,
  "gateway-latency": GatewayLatencyAnswer,
  "gateway-mtr": output,
  "gateway-traceroute": output,
  "network-status": NetworkStatusAnswer,
  "outbound-connection-check": OutboundConnectionAnswer,
  "repo-connectivity": RepoConnectivityAnswer,
  status: NodeStatusAnswer,
  "gateway-perf": output,
  "gateway-ping": output,
  "gateway-routes": GatewayRoutesAnswer,
  "nat-hits": NatHitsAnswer,
  "network-keep": CommitReport,
  "network-revert": CommitReport,
  "node-push-logs": PushedLogs,
  "node-reboot": Announced,
  "node-restart-service": Announced,
  "node-upgrade": UpgradeAnswer,
  plan: PlanReport,
  rollback: RollbackReport,
  "speed-test": output,
  "tg-arping": output,
  "tg-mtr": output,
  "tg-nc": z.object({ output: WholeOutput.shape.output.omit({ truncated: true }) }),
  "tg-ping": output,
  "tg-tcpdump": output,
  "tg-traceroute": output,
  why: WhyReport,
} as const satisfies Record<(typeof triggerEvents)[number], z.ZodType>;
