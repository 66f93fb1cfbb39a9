import { z } from "zod";
import { P256PublicKey } from "../values/keys.ts";
import {
  AddressBlock,
  Base64Url32,
  Fqdn,
  Host,
  IpAddress,
  Port,
  Text64,
  Text128,
  Text512,
  Text1024,
  Uid,
  UnixMilliseconds,
  Version,
} from "../values/values.ts";

const Name = z.string().min(1).max(253);
/** A path by its id in the configuration; empty is the built-in one to that gateway. */
export const PathId = Text128;
const Bits = z.number().min(1);

/** A node that this one may connect to or accept. `key` is the RFC 7638 thumbprint of its overlay key, which authenticates it. */
export const MeshPeer = z.object({
  uid: Uid,
  fqdn: Fqdn,
  key: Base64Url32,
  /** Whether it may dial this node's gateway. */
  mayDial: z.literal(true).optional(),
  /** A gateway that relays for other gateways too. */
  isHub: z.literal(true).optional(),
  /** A gateway that dials this one, and names the source node of each stream that it relays. */
  isGateway: z.literal(true).optional(),
});
export type MeshPeer = z.infer<typeof MeshPeer>;

/** A path to a gateway, kept up at all times. `local` is the source address. */
export const MeshPath = z.object({
  gateway: Uid,
  id: PathId,
  host: Host,
  port: Port,
  local: IpAddress.optional(),
  /** Preferred while it is up. */
  isDefault: z.boolean(),
});
export type MeshPath = z.infer<typeof MeshPath>;

/** A grant to a peer: a service by name, or a literal `IP:port`. */
export const MeshGrant = z.object({ source: Uid, service: Name, protocol: z.enum(["tcp", "udp"]) });
export type MeshGrant = z.infer<typeof MeshGrant>;

/**
 * The literal addresses that peers may have dialled here, by this node's local policy; absent means none. The loopback and the node's
 * own addresses need `own` besides.
 */
export const MeshLiterals = z.object({ allow: z.array(AddressBlock).max(64), own: z.literal(true).optional() });
export type MeshLiterals = z.infer<typeof MeshLiterals>;

/**
 * Address of this node's own gateway. `relays` are the pairs that it may carry: streams that `source` opens to `dest`, with the bytes of
 * both directions. Streams of the opposite direction need another pair. Absent means every pair.
 */
export const MeshServer = z.object({
  addresses: z.array(IpAddress).min(1).max(16),
  port: Port,
  relays: z
    .array(z.object({ source: Uid, dest: Uid }))
    .max(100_000)
    .optional(),
});
export type MeshServer = z.infer<typeof MeshServer>;

/** The part of the table that leads to other nodes. */
export const OverlayMesh = z.object({
  self: Uid,
  peers: z
    .array(MeshPeer)
    .max(10_000)
    .refine((peers) => new Set(peers.map(({ uid }) => uid)).size === peers.length, "two peers of one uid"),
  paths: z
    .array(MeshPath)
    .max(1024)
    .refine(
      (paths) => new Set(paths.map(({ gateway, id }) => `${gateway} ${id}`)).size === paths.length,
      "two paths of one id to a gateway",
    ),
  server: MeshServer.optional(),
  grants: z.array(MeshGrant).max(100_000),
  literals: MeshLiterals.optional(),
  /** Static routes: to reach `to`, use the tunnel to `via`; the lowest metric first. */
  routes: z.array(z.object({ to: Uid, via: Uid, metric: z.int().min(0) })).max(10_000),
  /** Bits a second over all tunnels together, in and out; absent means unlimited. */
  ingressBitsPerSecond: Bits.optional(),
  egressBitsPerSecond: Bits.optional(),
});
export type OverlayMesh = z.infer<typeof OverlayMesh>;

/** The private overlay key as a JWK (RFC 7518 §6.2), and the node's UID. The overlay stores it apart from its table. */
export const OverlayIdentity = z.object({ uid: Uid, key: P256PublicKey.extend({ d: Base64Url32 }) });
export type OverlayIdentity = z.infer<typeof OverlayIdentity>;

const Moved = { bytesIn: Version, bytesOut: Version };
const Remote = z.object({ ip: IpAddress, port: Port });
const Ms = z.number().min(0);

/** State of a path, with the time of the change and the reason. `carries` is true for the path of all traffic without another path. */
export const PathState = z.object({
  gateway: Uid,
  id: PathId,
  state: z.enum(["connecting", "up", "down"]),
  since: UnixMilliseconds,
  /** Cause of the state, for people: the probe, close or document. */
  reason: Text512.optional(),
  carries: z.boolean(),
  remote: Remote.optional(),
  /** Round-trip time of the last answered probe. */
  rttMs: Ms.optional(),
  /** Share of the last 20 probes that went unanswered, 0 to 1. */
  loss: z.number().min(0).max(1),
  attempts: Version,
  ...Moved,
});
export type PathState = z.infer<typeof PathState>;

/** A node that is connected to this node's gateway, or was in the last day. */
export const ClientState = z.object({
  peer: Uid,
  state: z.enum(["up", "down"]),
  since: UnixMilliseconds,
  reason: Text512.optional(),
  /** Number of hop sessions; one or two per path. */
  sessions: Version,
  remote: Remote.optional(),
  rttMs: Ms.optional(),
  ...Moved,
});
export type ClientState = z.infer<typeof ClientState>;

/** A peer session: end to end with another node, through `gateway` unless that is the node itself. */
export const PeerSessionState = z.object({
  peer: Uid,
  role: z.enum(["source", "destination"]),
  gateway: Uid,
  path: PathId,
  since: UnixMilliseconds,
  activeFlows: Version,
  flows: Version,
  ...Moved,
});
export type PeerSessionState = z.infer<typeof PeerSessionState>;

/** State of the node's own gateway. */
export const ServerState = z.object({
  state: z.enum(["listening", "failed", "off"]),
  reason: Text64.optional(),
  message: Text1024.optional(),
  /** Number of connections rejected before authentication, by reason: `too-many`, `timeout`, `closed`, `tls`, `unknown-key`, `alpn`. */
  refused: z.record(Text64, Version),
  /** Spliced streams between other nodes, now and in all, and the bytes they carried. */
  relays: z.object({ active: Version, total: Version, bytes: Version }),
});
export type ServerState = z.infer<typeof ServerState>;

/** Snapshot of the mesh. */
export const MeshState = z.object({
  paths: z.array(PathState).max(1024),
  clients: z.array(ClientState).max(10_000),
  sessions: z.array(PeerSessionState).max(20_000),
  server: ServerState,
});
export type MeshState = z.infer<typeof MeshState>;

/** Round-trip times of one path in one minute from `time`. `numRtt` counts all probes; the other values are of answered ones. */
export const RttBucket = z.object({
  gateway: Uid,
  path: PathId,
  time: UnixMilliseconds,
  numRtt: z.int().min(1),
  answered: Version,
  minRtt: Ms,
  maxRtt: Ms,
  meanRtt: Ms,
  stdRtt: Ms,
});
export type RttBucket = z.infer<typeof RttBucket>;

/** A change on the path to another node, with its duration, which states do not contain. */
export const MeshEvent = z.object({
  /**
   * `path-lost`: a path ended unexpectedly; `path-back`: it is up again; `moved`: the traffic uses another path;
   * `gateway-removed`: the document no longer has it; `client-lost` and `client-back`: the same of a client of this gateway;
   * `session-lost`: a peer session with flows ended; `session-back`: the next one is up.
   */
  kind: z.enum([
    "path-lost",
    "path-back",
    "moved",
    "gateway-removed",
    "client-lost",
    "client-back",
    "session-lost",
    "session-back",
  ]),
  at: UnixMilliseconds,
  gateway: Uid.optional(),
  path: PathId.optional(),
  peer: Uid.optional(),
  /** Previous path of the traffic, for `moved`. */
  from: z.object({ gateway: Uid, path: PathId }).optional(),
  cause: Text512,
  /** From the first sign of trouble to traffic flowing again. */
  durationMs: Ms.optional(),
});
export type MeshEvent = z.infer<typeof MeshEvent>;
