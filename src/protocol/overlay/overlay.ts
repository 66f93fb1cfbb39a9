import { createHash } from "node:crypto";
import { z } from "zod";
import type { JsonLimits } from "../../lib/formats/strict-json.ts";
import type { MethodSpec } from "../channel/methods.ts";
import { MeshEvent, MeshState, OverlayIdentity, OverlayMesh, PathId, RttBucket } from "./mesh.ts";
import { FlowUsage } from "../documents/telemetry.ts";
import {
  AddressBlock,
  Host,
  IpAddress,
  JsonObject,
  Port,
  Text64,
  Text253,
  Text512,
  Text1024,
  Uid,
  UnixMilliseconds,
  Version,
} from "../values/values.ts";

/** Format of the table. An overlay rejects a newer format and keeps its current table. */
export const OVERLAY_FORMAT = 2;

/** The socket below the overlay's run directory, for the agent alone. */
export const OVERLAY_SOCKET = "overlay.sock";

/** Directories of the overlay of a managed install, which has its own unit and user. */
export const MANAGED_OVERLAY = { stateDir: "/var/lib/holdfast-overlay", runDir: "/run/holdfast-overlay" };

/** Exit status of an overlay that was replaced by a successor, so that it is not restarted. */
export const GAVE_WAY_STATUS = 80;

/** The longest line on that socket: a full table. */
export const OVERLAY_LIMITS: JsonLimits = { maxBytes: 64 * 1024 * 1024, maxDepth: 16 };

/** Maximum duration of a drain, in milliseconds. */
export const MAX_DRAIN_MS = 600_000;

const Text = z.string().min(1).max(253);
const Transport = z.enum(["tcp", "udp"]);
/** Application protocol that opens further connections (RFC 959, RFC 1350). */
const Application = z.enum(["ftp", "tftp"]);
export type Application = z.infer<typeof Application>;

/** A dial target on this node. `sourceAddress` is the local address of the connection; with `lacksSource` it is absent and no flow is possible. */
export const OverlayService = z.object({
  name: Text,
  protocol: Transport,
  application: Application.optional(),
  host: Host,
  port: Port,
  sourceAddress: IpAddress.optional(),
  lacksSource: z.literal(true).optional(),
  connectTimeoutMs: z.int().min(1).max(600_000),
  idleTimeoutMs: z.int().min(1000),
  /** If absent, its health is not checked and it is always offered. */
  healthCheck: z
    .object({ intervalMs: z.int().min(100), failures: z.int().min(1), successes: z.int().min(1) })
    .optional(),
});
export type OverlayService = z.infer<typeof OverlayService>;

/** Target of a listener: a service by name, or a literal address, on `peer` or on this node. */
export const OverlayTarget = z.union([
  z.object({ peer: Uid, service: Text }),
  z.object({ peer: Uid, host: IpAddress, port: Port }),
  z.object({ service: Text }),
  z.object({ host: IpAddress, port: Port }),
]);
export type OverlayTarget = z.infer<typeof OverlayTarget>;

/**
 * A listener of the table. `key` identifies it by protocol, bind configuration and port: an entry with the same key keeps its
 * counters and flows, and the sockets of its remaining addresses. `connector` is its item of the configuration; an entry of which only
 * the key changed is matched by connector, protocol and port.
 */
export const OverlayListener = z.object({
  key: z.string().min(1).max(512),
  connector: Text,
  protocol: Transport,
  application: Application.optional(),
  addresses: z.array(IpAddress).min(1).max(256),
  port: Port,
  target: OverlayTarget,
  /** CIDR blocks that may connect; absent means any address. */
  sources: z.array(AddressBlock).max(1024).optional(),
  /** Bits a second each way, shared by all flows of the listener; absent means unlimited. */
  bitsPerSecond: z.number().min(1).optional(),
  maxFlows: z.int().min(1).max(1_000_000),
  idleTimeoutMs: z.int().min(1000),
});
export type OverlayListener = z.infer<typeof OverlayListener>;

/** The overlay's complete table; an empty table serves nothing. */
export const OverlayTable = z.object({
  format: z.int().min(1).max(OVERLAY_FORMAT),
  version: Version.min(1),
  services: z.array(OverlayService).max(20_000).refine(areUnique, "two services of one name"),
  listeners: z
    .array(OverlayListener)
    .max(20_000)
    .refine((listeners) => areUnique(listeners.map(({ key }) => ({ name: key }))), "two listeners of one key"),
  /** Absent while this node knows no other. */
  mesh: OverlayMesh.optional(),
});
export type OverlayTable = z.infer<typeof OverlayTable>;

function areUnique(named: readonly { readonly name: string }[]): boolean {
  return new Set(named.map(({ name }) => name)).size === named.length;
}

/** A received table. Its format is checked first, because the rest of a newer format is unknown. */
export const ReceivedTable = z
  .looseObject({ format: z.int().min(1).max(OVERLAY_FORMAT, "this overlay is older than the table") })
  .pipe(OverlayTable);

/** A table in the format of a newer version. */
export const NewerTable = z.looseObject({ format: z.int().min(OVERLAY_FORMAT + 1) });

/** Returns the digest of a table: SHA-256 of its JSON, in hex. */
export function tableHash(table: OverlayTable): string {
  return createHash("sha256").update(JSON.stringify(table)).digest("hex");
}

/** Reason why a listener or a flow failed. */
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
  /** No path to any gateway is up. */
  "no-path",
  /** The gateways that are up do not have the other node. */
  "peer-absent",
  /** The peer did not prove the expected key. */
  "peer-unproven",
  /** The other node's document does not grant it. */
  "not-granted",
  /** The local policy of the other node does not permit the literal address. */
  "literal-not-permitted",
  /** The tunnel ended under the flow. */
  "tunnel-lost",
  /** A relay may not carry the pair, or it went through too many. */
  "relay-refused",
  "other",
]);
export type OverlayReason = z.infer<typeof OverlayReason>;

/** State of a listener: failed if it lacks an address, or if no flow can succeed (`loop`, `unknown-service`, …). */
export const ListenerState = z.object({
  key: Text512,
  connector: Text,
  state: z.enum(["listening", "failed"]),
  reason: OverlayReason.optional(),
  message: Text1024.optional(),
  /** The addresses it is bound to. */
  addresses: z.array(IpAddress).max(256),
});
export type ListenerState = z.infer<typeof ListenerState>;

/** Counters since the listener came into the table. A refusal never reached its target; an error ended a flow that had. */
export const ListenerCounters = z.object({
  key: Text512,
  connector: Text,
  /** Flows that reached their target; `refusals` counts the refused ones. */
  flows: Version,
  activeFlows: Version,
  /** Bytes that clients sent, and that they were sent. */
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

/** An address and a port. */
export const Place = z.object({ ip: IpAddress, port: Port });
export type Place = z.infer<typeof Place>;

/**
 * A finished or refused flow, ready for the platform's flow record. Times in Unix milliseconds. For a listener of this node, `destIp` and
 * `destPort` are the address that the client dialled, and `backend` is the address of the service. A flow from a peer to a service of
 * this node has no listener: client and connector are reported by the peer, the destination is the backend, and `origin` is the local
 * address of the connection to it.
 */
export const OverlayFlow = z.object({
  /** Equal at both ends. */
  id: Text64.optional(),
  listener: Text512,
  connector: Text253,
  /** The other node, where there is one. */
  peer: Uid.optional(),
  service: Text253,
  protocol: Transport,
  sourceIp: IpAddress,
  sourcePort: Port,
  destIp: IpAddress.optional(),
  destPort: Port.optional(),
  backend: Place.optional(),
  origin: Place.optional(),
  sourceBytes: Version,
  destBytes: Version,
  startedAt: UnixMilliseconds,
  endedAt: UnixMilliseconds,
  reason: OverlayReason.optional(),
  /** The flow is open; bytes are those so far. */
  interim: z.literal(true).optional(),
  /** The bytes since its last record by the minute, in Unix seconds; absent when all are of the minute in which it ended. */
  usage: FlowUsage.optional(),
});
export type OverlayFlow = z.infer<typeof OverlayFlow>;

/** Filter for open flows; an absent member matches any. */
export const OverlayFlowFilter = z.object({
  protocol: Transport.optional(),
  source: AddressBlock.optional(),
  dest: AddressBlock.optional(),
  sourcePort: Port.optional(),
  destPort: Port.optional(),
  /** The address of the client, of what it dialled, or of the backend. */
  party: IpAddress.optional(),
});
export type OverlayFlowFilter = z.infer<typeof OverlayFlowFilter>;

/** Limit of flows in one answer. */
export const MAX_LIVE_FLOWS = 50_000;

const LiveFlowsCall = {
  kind: "request",
  params: z.object({ filter: OverlayFlowFilter, limit: z.int().min(0).max(MAX_LIVE_FLOWS) }),
  result: z.object({ flows: z.array(OverlayFlow).max(MAX_LIVE_FLOWS), total: Version }),
} as const;

/** Something of the overlay that somebody must hear of; `file` is the one of its state that it is about, until that is mended. */
export const OverlayFault = z.object({
  code: z.string().min(1).max(64).optional(),
  message: Text1024,
  file: z.string().max(255).optional(),
});
export type OverlayFault = z.infer<typeof OverlayFault>;

const Nothing = z.object({});

/** Methods that the agent calls on the overlay. Frames are lines of JSON-RPC 2.0. */
export const overlayMethods = {
  /** Replaces the table; answered when it is applied and stored. Failed listeners are retried even if nothing changed. */
  "table.set": {
    kind: "request",
    params: z.object({ table: ReceivedTable }),
    result: z.object({ version: Version, hash: Text64, listeners: z.array(ListenerState).max(20_000) }),
  },
  /** Version 0 and no hash: it has no table yet. The table itself comes along unless its hash is the one that is `known`. */
  "table.get": {
    kind: "request",
    params: z.object({ known: Text64.optional() }),
    result: z.object({
      version: Version,
      hash: Text64,
      table: ReceivedTable.optional(),
      listeners: z.array(ListenerState).max(20_000),
      services: z.array(ServiceHealth).max(20_000),
    }),
  },
  /** The private key with which this node proves itself to others; kept on disk, 0600, apart from the table. */
  "identity.set": { kind: "request", params: OverlayIdentity, result: Nothing },
  /** The network has changed: paths that wait are dialled at once, and those that are up are probed. */
  "mesh.wake": { kind: "request", params: Nothing, result: Nothing },
  "mesh.get": { kind: "request", params: Nothing, result: MeshState },
  /**
   * Sends bytes to a peer and waits for them to come back, inside the tunnel; by one path if named. Without an answer in time it
   * fails as `timeout`; `not-found` is an unknown peer or path, `not-connected` one without a tunnel.
   */
  echo: {
    kind: "request",
    params: z.object({
      peer: Uid,
      path: PathId.optional(),
      bytes: z.int().min(8).max(65_000),
      timeoutMs: z.int().min(100).max(60_000),
    }),
    result: z.object({ rttMs: z.number().min(0), gateway: Uid, path: PathId }),
  },
  /** Uploads bytes to a peer in messages and within a window; progress comes as `perf.progress`. Errors as of `echo`, and `cancelled`. */
  "perf.run": {
    kind: "request",
    params: z.object({
      id: z.string().min(1).max(64),
      peer: Uid,
      path: PathId.optional(),
      bytes: z.int().min(1).max(1_000_000_000),
      messageBytes: z.int().min(1).max(1_048_576),
      windowBytes: z.int().min(1024).max(16_777_216),
    }),
    result: z.object({ bytes: Version, ms: z.number().min(0), gateway: Uid, path: PathId }),
  },
  "perf.cancel": { kind: "request", params: z.object({ id: Text64 }), result: Nothing },
  "counters.get": {
    kind: "request",
    params: Nothing,
    result: z.object({
      pid: z.int().min(1),
      startedAt: UnixMilliseconds,
      version: Version,
      draining: z.boolean(),
      /** Flow records lost since the start, because nobody took them. */
      flowsDropped: Version,
      listeners: z.array(ListenerState).max(20_000),
      counters: z.array(ListenerCounters).max(20_000),
      services: z.array(ServiceHealth).max(20_000),
    }),
  },
  /** Lists running flows that match, and their number. */
  "flows.list": LiveFlowsCall,
  /** Resets the flows that match, and lists them. */
  "flows.cut": LiveFlowsCall,
  /**
   * Stops listening, releases the path of this socket, and exits when its flows have ended or the deadline has passed. Answered as
   * soon as nothing is accepted. If a successor calls it, the agent's connection is closed, so that the agent connects to the successor.
   */
  drain: { kind: "request", params: z.object({ deadlineMs: z.int().min(0).max(MAX_DRAIN_MS) }), result: Nothing },
  /** For a reset of the node: deletes key, certificate and table from the disk, and stops at once with all flows. */
  forget: { kind: "request", params: Nothing, result: Nothing },
  /**
   * Called by a successor before it listens beside this process. From then on it receives the flow records of this process. The agent's
   * connection is the newest one with a call other than `drain` and `handover`; an earlier one is closed.
   */
  handover: {
    kind: "request",
    params: Nothing,
    result: z.object({
      pid: z.int().min(1),
      table: OverlayTable.optional(),
      bound: z.array(z.object({ protocol: Transport, address: IpAddress, port: Port })).max(200_000),
    }),
  },
} as const satisfies Record<string, MethodSpec>;

/** Notifications of the overlay to the agent. */
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
  /** State of paths and clients, on each change; at most once in 100 ms. */
  "mesh.changed": { kind: "notification", params: MeshState.omit({ sessions: true }), result: Nothing },
  "mesh.events": { kind: "notification", params: z.object({ events: z.array(MeshEvent).max(500) }), result: Nothing },
  "rtt.closed": { kind: "notification", params: z.object({ buckets: z.array(RttBucket).max(1024) }), result: Nothing },
  "perf.progress": {
    kind: "notification",
    params: z.object({ id: Text64, bytes: Version, lost: Version }),
    result: Nothing,
  },
  "flows.ended": { kind: "notification", params: z.object({ flows: z.array(OverlayFlow).max(500) }), result: Nothing },
  /** It accepts nothing any more and has given up its path; the records of flows that it still has come on this connection. */
  draining: {
    kind: "notification",
    params: z.object({
      /** Another overlay is about to serve that path. */
      hasSuccessor: z.boolean().optional(),
    }),
    result: Nothing,
  },
  fault: {
    kind: "notification",
    params: OverlayFault.extend({ details: JsonObject.optional() }),
    result: Nothing,
  },
  /** A damaged state file was rewritten. */
  "fault.mended": { kind: "notification", params: z.object({ file: z.string().max(255) }), result: Nothing },
} as const satisfies Record<string, MethodSpec>;

export type OverlayMethods = typeof overlayMethods;
export type OverlayNotices = typeof overlayNotices;
