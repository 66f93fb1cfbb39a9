import { z } from "zod";
import {
  boundedMap,
  IpAddress,
  JsonObject,
  NodeName,
  Text64,
  Text253,
  Text1024,
  UnixMilliseconds,
  UnixSeconds,
  Version,
} from "../values/values.ts";

export const EventLevel = z.enum(["INFO", "WARNING", "ERROR", "CRITICAL"]);
export type EventLevel = z.infer<typeof EventLevel>;
export const EventState = z.enum(["EXCEEDED", "CLEARED", "UNKNOWN"]);
export type EventState = z.infer<typeof EventState>;

/** An event as the node raises it; the control plane adds who, where and when received. `timestamp` is Unix seconds. */
export const NodeEvent = z.object({
  eventType: z.string().min(1).max(64),
  level: EventLevel,
  message: Text1024,
  timestamp: UnixSeconds,
  state: EventState,
  details: JsonObject,
});
export type NodeEvent = z.infer<typeof NodeEvent>;

/** The type of the condition that the last upgrade failed; its subject is `Upgrade`, that of all others `Node`. */
export const UPGRADE_EVENT = "Upgrade Failed";

/** An audit line; `timestamp` is Unix seconds. */
export const NodeAudit = z.object({
  category: z.string().min(1).max(64),
  value: Text1024,
  timestamp: UnixSeconds,
});
export type NodeAudit = z.infer<typeof NodeAudit>;

/** One sample a minute: `t` in Unix seconds, on the minute; `m` by metric name. */
export const MetricSample = z.object({
  t: z.int().min(0),
  m: boundedMap(z.number(), { minName: 0, maxName: 128, maxNames: 16_384, isPlain: Number.isFinite }),
});
export type MetricSample = z.infer<typeof MetricSample>;

/** Bits of `flags` in a flow record, by the reason of a denied flow. */
export const flowFlags = {
  "no-acl-match": 65_536,
  "no-rule-match": 131_072,
  "no-route": 262_144,
  "invalid-tcp": 524_288,
  "tls-certificate-expired": 67_108_864,
  "tls-name-mismatch": 134_217_728,
  "tls-self-signed": 268_435_456,
  "tls-mutual-auth-required": 536_870_912,
} as const;

/** Metrics that mark a sample as defunct. */
export const DEFUNCT_FLAGS = Object.values(flowFlags).reduce((mask, flag) => mask | flag, 0);

const FlowPort = z.int().min(0).max(65_535);
/** Empty if unknown, as for a flow refused before its target was resolved. */
const FlowAddress = z.union([IpAddress, z.literal("")]);
const FlowTime = z.iso.datetime({ precision: 3 }).meta({ description: "ISO 8601, UTC, with milliseconds" });
const BitMask = z.string().regex(/^(?:0|[1-9]\d{0,9})$/, "must be a bit mask as a decimal number");

/** Bytes of a flow by the minute; `t` in Unix seconds, on the minute. */
export const FlowUsage = z.array(z.object({ t: z.int().min(0), bytes: Version })).max(128);

/**
 * A finished or refused flow, or with `meta.interim` one that goes on, once an hour; the control plane adds whose it is. `sourceNode` and `destNode` are names of nodes, or both `local` where
 * it does not cross the overlay; `sourceBytes` is what the source sent.
 */
export const FlowRecord = z.object({
  sourceNode: z.string().min(1).max(253),
  destNode: z.string().min(1).max(253),
  sourceIP: FlowAddress,
  destIP: FlowAddress,
  sourcePort: FlowPort,
  destPort: FlowPort,
  sourceBytes: Version,
  destBytes: Version,
  startTime: FlowTime,
  endTime: FlowTime,
  protocol: z.enum(["TCP", "UDP", "ICMP", "UNKNOWN"]),
  /** Counted over all packets; absent unless the flow is TCP through a virtual network. */
  tcpFlags: BitMask.optional(),
  flags: BitMask,
  activityID: Text64.optional(),
  /** The bytes since the flow's last record by the minute; without it all flowed in the minute in which it ended. */
  usage: FlowUsage.optional(),
  /**
   * Anything more. A connector's flow has `flow`, its id in the records of both ends, `connector`, `service`, at the connector
   * `backend` where that is on the same node, at the service's end `origin`, where the backend was dialled from, and `reason` when it
   * was refused or cut.
   */
  meta: JsonObject.refine((meta) => JSON.stringify(meta).length <= 4096, "must not be longer than 4096 as JSON")
    .nullable()
    .optional(),
});
export type FlowRecord = z.infer<typeof FlowRecord>;

/** Round-trip time in milliseconds, up to the time limit of a probe. */
const Rtt = z.number().min(0).max(3_600_000);
const Answered = { minRtt: Rtt, maxRtt: Rtt, meanRtt: Rtt };

/** A hop on the path to a gateway, outside the tunnel. Hops that do not answer are missing. */
export const HopDetails = z.object({
  hop: z.int().min(1).max(255),
  ip: IpAddress,
  /** Its name, or the address again. */
  fqdn: Text253,
  ...Answered,
  numRtt: z.int().min(1).max(1_000_000),
});
export type HopDetails = z.infer<typeof HopDetails>;

/**
 * Round trips within one tunnel in one interval: `time` is its start, `node` the name of the gateway at the other end, `numRtt` how many
 * were sent, the others are of what was answered; nothing answered is no record. `stdRtt` is the population's.
 */
export const GatewayDetails = z.object({
  time: UnixMilliseconds,
  node: NodeName,
  /** Absent for the built-in path. */
  path: z.string().min(1).max(128).optional(),
  ...Answered,
  stdRtt: Rtt,
  numRtt: z.int().min(1).max(1_000_000),
  hops: z.array(HopDetails).max(64).optional(),
});
export type GatewayDetails = z.infer<typeof GatewayDetails>;

/** Characters of output in one record. */
export const CONTAINER_OUTPUT_CHARS = 4096;

/** A piece of the output of a container with `saveOutput`; `at` is its time, and `run` identifies the run. */
export const ContainerOutput = z.object({
  /** Id of the definition. */
  container: z.string().min(1).max(253),
  name: z.string().min(1).max(253),
  run: z.string().min(1).max(64),
  stream: z.enum(["stdout", "stderr"]),
  at: UnixMilliseconds,
  text: z.string().min(1).max(CONTAINER_OUTPUT_CHARS),
});
export type ContainerOutput = z.infer<typeof ContainerOutput>;

/** Streams of numbered records. */
export const recordByStream = {
  events: NodeEvent,
  audits: NodeAudit,
  metrics: MetricSample,
  "gateway-details": GatewayDetails,
  flows: FlowRecord,
  output: ContainerOutput,
} as const;
export const StreamName = z.enum(["events", "audits", "metrics", "gateway-details", "flows", "output"]);
export type StreamName = z.infer<typeof StreamName>;

const MAX_RECORDS = 500;

/** Records `first`, `first + 1`, … of one stream, with how many were dropped before `first` since the last push. */
export const TelemetryPush = z.object({
  stream: StreamName,
  // The number of the last one, too, is a number that JavaScript holds exactly.
  first: Version.min(1).max(Number.MAX_SAFE_INTEGER - MAX_RECORDS),
  records: z.array(JsonObject).min(1).max(MAX_RECORDS),
  dropped: Version.optional(),
});
export type TelemetryPush = z.infer<typeof TelemetryPush>;
export const TelemetryAck = z.object({ last: Version });
