import { z } from "zod";
import type { MethodSpec } from "./methods.ts";
import { Host, IpAddress, JsonObject, Port, UnixMilliseconds, Version } from "./values.ts";

/** The form of the table; an overlay that is given a newer one keeps the table it has and says so. */
export const OVERLAY_FORMAT = 1;

/** The socket below the overlay's run directory, for the agent alone. */
export const OVERLAY_SOCKET = "overlay.sock";

const Text = z.string().min(1).max(253);
const Transport = z.enum(["tcp", "udp"]);

/** A dial target on this node. `sourceAddress` is what the connection leaves from. */
export const OverlayService = z.object({
  name: Text,
  protocol: Transport,
  host: Host,
  port: Port,
  sourceAddress: IpAddress.optional(),
  connectTimeoutMs: z.int().min(1).max(600_000),
  idleTimeoutMs: z.int().min(1000),
  /** Off means that its health is not judged, and it is always offered. */
  healthCheck: z
    .object({ intervalMs: z.int().min(100), failures: z.int().min(1), successes: z.int().min(1) })
    .optional(),
});
export type OverlayService = z.infer<typeof OverlayService>;

/** What a listener leads to: a service of this node by name, or an address taken literally. */
export const OverlayTarget = z.union([z.object({ service: Text }), z.object({ host: IpAddress, port: Port })]);
export type OverlayTarget = z.infer<typeof OverlayTarget>;

/**
 * An entry of the table that listens. `key` is its identity by content (protocol, addresses, port): what keeps its key keeps its
 * socket and its flows; `connector` is the item of the configuration it came from.
 */
export const OverlayListener = z.object({
  key: z.string().min(1).max(512),
  connector: Text,
  protocol: Transport,
  addresses: z.array(IpAddress).min(1).max(256),
  port: Port,
  target: OverlayTarget,
  /** CIDR blocks that may connect; absent means everybody. */
  sources: z.array(z.string().max(49)).max(1024).optional(),
  /** Bits a second each way, shared by all flows of the listener; absent means unlimited. */
  bitsPerSecond: z.number().min(1).optional(),
  maxFlows: z.int().min(1).max(1_000_000),
  idleTimeoutMs: z.int().min(1000),
});
export type OverlayListener = z.infer<typeof OverlayListener>;

/** Everything the overlay serves, sent whole; an empty table serves nothing. */
export const OverlayTable = z.object({
  format: z.int().min(1),
  version: Version.min(1),
  services: z.array(OverlayService).max(20_000),
  listeners: z.array(OverlayListener).max(20_000),
});
export type OverlayTable = z.infer<typeof OverlayTable>;

/** Why a listener or a flow came to nothing. */
export const OverlayReason = z.enum([
  "address-in-use",
  "address-absent",
  "permission-denied",
  "loop",
  "unknown-service",
  "service-down",
  "protocol-mismatch",
  "resolve-failed",
  "connect-refused",
  "connect-timeout",
  "unreachable",
  "source-not-permitted",
  "too-many-flows",
  "out-of-resources",
  "reset",
  "idle",
  "removed",
  "other",
]);
export type OverlayReason = z.infer<typeof OverlayReason>;

/** How a listener stands. */
export const ListenerState = z.object({
  key: z.string().max(512),
  state: z.enum(["listening", "failed"]),
  reason: OverlayReason.optional(),
  message: z.string().max(1024).optional(),
  /** The addresses it is bound to. */
  addresses: z.array(IpAddress).max(256),
});
export type ListenerState = z.infer<typeof ListenerState>;

/** Counters since the listener came into the table; bytes as the client sees them. */
export const ListenerCounters = z.object({
  key: z.string().max(512),
  flows: Version,
  activeFlows: Version,
  bytesIn: Version,
  bytesOut: Version,
  datagramsDropped: Version,
  refusals: z.partialRecord(OverlayReason, Version),
  errors: z.partialRecord(OverlayReason, Version),
});
export type ListenerCounters = z.infer<typeof ListenerCounters>;

export const ServiceHealth = z.object({
  name: Text,
  state: z.enum(["up", "down", "unknown"]),
  since: UnixMilliseconds,
});
export type ServiceHealth = z.infer<typeof ServiceHealth>;

/** A finished or refused flow, ready for the platform's flow record. Times in Unix milliseconds. */
export const OverlayFlow = z.object({
  listener: z.string().max(512),
  connector: Text,
  service: z.string().max(253),
  protocol: Transport,
  sourceIp: IpAddress,
  sourcePort: Port,
  destIp: IpAddress.optional(),
  destPort: Port.optional(),
  sourceBytes: Version,
  destBytes: Version,
  startedAt: UnixMilliseconds,
  endedAt: UnixMilliseconds,
  reason: OverlayReason.optional(),
});
export type OverlayFlow = z.infer<typeof OverlayFlow>;

const Nothing = z.object({});

/** What the agent calls on the overlay. Frames are lines of JSON-RPC 2.0. */
export const overlayMethods = {
  "table.set": {
    kind: "request",
    params: z.object({ table: OverlayTable }),
    result: z.object({ version: Version, listeners: z.array(ListenerState).max(20_000) }),
  },
  "table.get": { kind: "request", params: Nothing, result: z.object({ version: Version, hash: z.string().max(64) }) },
  "counters.get": {
    kind: "request",
    params: Nothing,
    result: z.object({
      pid: z.int().min(1),
      startedAt: UnixMilliseconds,
      version: Version,
      listeners: z.array(ListenerState).max(20_000),
      counters: z.array(ListenerCounters).max(20_000),
      services: z.array(ServiceHealth).max(20_000),
    }),
  },
  /** Stops listening and ends when its flows have ended, ten minutes at most. */
  drain: { kind: "request", params: z.object({ deadlineMs: z.int().min(0) }), result: Nothing },
} as const satisfies Record<string, MethodSpec>;

/** What the overlay tells the agent. */
export const overlayNotices = {
  "listeners.changed": {
    kind: "notification",
    params: z.object({ listeners: z.array(ListenerState).max(20_000) }),
    result: Nothing,
  },
  "services.changed": {
    kind: "notification",
    params: z.object({ services: z.array(ServiceHealth).max(20_000) }),
    result: Nothing,
  },
  "flows.ended": { kind: "notification", params: z.object({ flows: z.array(OverlayFlow).max(500) }), result: Nothing },
  fault: {
    kind: "notification",
    params: z.object({ message: z.string().max(1024), details: JsonObject.optional() }),
    result: Nothing,
  },
} as const satisfies Record<string, MethodSpec>;

export type OverlayMethods = typeof overlayMethods;
export type OverlayNotices = typeof overlayNotices;
