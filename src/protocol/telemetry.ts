import { z } from "zod";
import { JsonObject, UnixSeconds, Version } from "./values.ts";

export const EventLevel = z.enum(["INFO", "WARNING", "ERROR", "CRITICAL"]);
export type EventLevel = z.infer<typeof EventLevel>;
export const EventState = z.enum(["EXCEEDED", "CLEARED", "UNKNOWN"]);
export type EventState = z.infer<typeof EventState>;

/** An event as the node raises it; the control plane adds who, where and when received. `timestamp` is Unix seconds. */
export const NodeEvent = z.object({
  eventType: z.string().min(1).max(64),
  level: EventLevel,
  message: z.string().max(1024),
  timestamp: UnixSeconds,
  state: EventState,
  details: JsonObject,
});
export type NodeEvent = z.infer<typeof NodeEvent>;

/** An audit line; `timestamp` is Unix seconds. */
export const NodeAudit = z.object({
  category: z.string().min(1).max(64),
  value: z.string().max(1024),
  timestamp: UnixSeconds,
});
export type NodeAudit = z.infer<typeof NodeAudit>;

/** One sample a minute: `t` in Unix seconds, on the minute; `m` by metric name. */
export const MetricSample = z.object({ t: z.int().min(0), m: z.record(z.string().max(128), z.number()) });
export type MetricSample = z.infer<typeof MetricSample>;

/** Streams of numbered records; those without a schema of their own are carried as they are until something produces them. */
export const recordByStream = {
  events: NodeEvent,
  audits: NodeAudit,
  metrics: MetricSample,
  "gateway-details": JsonObject,
  flows: JsonObject,
  output: JsonObject,
} as const;
export const StreamName = z.enum(["events", "audits", "metrics", "gateway-details", "flows", "output"]);
export type StreamName = z.infer<typeof StreamName>;

/** Records `first`, `first + 1`, … of one stream, with how many were dropped before `first` since the last push. */
export const TelemetryPush = z.object({
  stream: StreamName,
  first: Version.min(1),
  records: z.array(JsonObject).min(1).max(500),
  dropped: Version.optional(),
});
export type TelemetryPush = z.infer<typeof TelemetryPush>;
export const TelemetryAck = z.object({ last: Version });
