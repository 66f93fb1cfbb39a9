import { z } from "zod";
import { GatewayType } from "../sections/gateway/domain-items.ts";
import { OverlayState } from "./overlay.ts";
import { ClientState, PathId, PathState, PeerSessionState, ServerState } from "../overlay/mesh.ts";
import { Issue } from "../documents/reconcile.ts";
import {
  Fqdn,
  Host,
  IpAddress,
  NodeName,
  NodeType,
  Port,
  Text253,
  Text512,
  Uid,
  UnixMilliseconds,
  Version,
} from "../values/values.ts";

/**
 * State of the paths that this node initiates: `up` if all are up, `degraded` if some, `down` if none is; `none` if there are no paths, and
 * `unknown` without an answer of the overlay.
 */
export const DataPlaneState = z.enum(["up", "degraded", "down", "none", "unknown"]);
export type DataPlaneState = z.infer<typeof DataPlaneState>;

const who = { uid: Uid, name: NodeName, fqdn: Fqdn };

/** A desired path and its state; `pending` if the overlay does not have it yet. */
export const PathView = PathState.omit({ gateway: true, state: true, since: true }).extend({
  /** Empty for the built-in one. */
  id: PathId,
  host: Host,
  port: Port,
  local: IpAddress.optional(),
  isDefault: z.boolean(),
  state: z.enum([...PathState.shape.state.options, "pending"]),
  /** Absent while it is pending. */
  since: UnixMilliseconds.optional(),
});
export type PathView = z.infer<typeof PathView>;

/** A gateway that this node dials. */
export const GatewayView = z.object({ ...who, type: GatewayType, paths: z.array(PathView).max(1024) });
export type GatewayView = z.infer<typeof GatewayView>;

/** This node's own gateway. */
export const GatewayServerView = ServerState.extend({
  port: Port,
  addresses: z.array(IpAddress).max(16),
  /** Nodes that have dialled it and are there, and how many may. */
  clients: Version,
  admitted: Version,
});
export type GatewayServerView = z.infer<typeof GatewayServerView>;

/** Path that carries traffic without a path of its own, with the time of the change and the reason. */
export const Carrier = z.object({
  gateway: NodeName,
  path: PathId,
  since: UnixMilliseconds,
  reason: Text512.optional(),
});
export type Carrier = z.infer<typeof Carrier>;

/** The answer to `GET /v1/gateways`: every gateway that this node dials with its paths, and its own. */
export const GatewaysReport = z.object({
  schema: z.literal(1),
  overlay: OverlayState,
  /** Absent while the node has no document of its domain. */
  domain: Fqdn.optional(),
  dataPlane: DataPlaneState,
  carrier: Carrier.optional(),
  /** Issues of the section, or of its part of the domain document. */
  issues: z.array(Issue).max(100),
  gateways: z.array(GatewayView).max(1024),
  server: GatewayServerView.optional(),
});
export type GatewaysReport = z.infer<typeof GatewaysReport>;

/** A peer session, with the gateway it goes through by name. */
export const PeerSessionView = PeerSessionState.omit({ peer: true, gateway: true }).extend({
  gateway: Text253,
});
export type PeerSessionView = z.infer<typeof PeerSessionView>;

/**
 * Another node of the domain. `connected`: there is a tunnel between the two, or a session through a gateway; `reachable`: a gateway
 * that is up may lead to it, which nothing has tried; `unreachable`: there is no way at all.
 */
export const PeerView = z.object({
  ...who,
  type: NodeType,
  state: z.enum(["connected", "reachable", "unreachable"]),
  /** Since when it is connected, or is no longer. */
  since: UnixMilliseconds.optional(),
  /** This node dials it. */
  isGateway: z.boolean(),
  /** Whether it may dial this node. */
  mayDial: z.boolean(),
  /** Its last connection to this node's gateway, if any. */
  client: ClientState.omit({ peer: true }).optional(),
  sessions: z.array(PeerSessionView).max(64),
  /** Services it may use on this node; `more` counts omitted ones. */
  grants: z.array(z.object({ service: Text253, protocol: z.enum(["tcp", "udp"]) })).max(64),
  moreGrants: Version.optional(),
});
export type PeerView = z.infer<typeof PeerView>;

/** The answer to `GET /v1/peers`: every node that this one may meet. */
export const PeersReport = z.object({
  schema: z.literal(1),
  overlay: OverlayState,
  domain: Fqdn.optional(),
  dataPlane: DataPlaneState,
  issues: z.array(Issue).max(100),
  peers: z.array(PeerView).max(10_000),
});
export type PeersReport = z.infer<typeof PeersReport>;

/** The paths of this node in short: their state, how many exist and are up, the current carrier, and its own gateway if it is one. */
export const DataPlane = z.object({
  state: DataPlaneState,
  paths: Version,
  up: Version,
  carrier: Carrier.optional(),
  server: ServerState.shape.state.optional(),
});
export type DataPlane = z.infer<typeof DataPlane>;
