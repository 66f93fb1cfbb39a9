import { z } from "zod";
import { ItemReason, OverlayState } from "./local-overlay.ts";
import { ClientState, MeshPath, PathState, PeerSessionState, ServerState } from "./overlay-mesh.ts";
import { Base64Url32, Host, IpAddress, Port } from "./values.ts";

/** What a node is called: its FQDN, or its uid where the domain document has no name for it. */
const Name = z.string().max(253);

/** A path to a gateway: how the domain document and the configuration have it, and how it stands. */
export const GatewayPathView = PathState.extend({
  name: Name,
  host: Host.optional(),
  port: Port.optional(),
  /** The address it leaves from, where one is named. */
  local: IpAddress.optional(),
});
export type GatewayPathView = z.infer<typeof GatewayPathView>;

/** Every path of this node to a gateway, and its own gateway; `reasons` are what is wrong with the section. */
export const GatewaysReport = z.object({
  schema: z.literal(1),
  overlay: OverlayState,
  reasons: z.array(ItemReason).max(100),
  paths: z.array(GatewayPathView).max(1024),
  /** Absent while this node serves none. */
  server: ServerState.extend({ addresses: z.array(IpAddress).max(16).optional(), port: Port.optional() }).optional(),
});
export type GatewaysReport = z.infer<typeof GatewaysReport>;

export const ClientView = ClientState.extend({ name: Name });
export type ClientView = z.infer<typeof ClientView>;

export const PeerSessionView = PeerSessionState.extend({ name: Name, gatewayName: Name });
export type PeerSessionView = z.infer<typeof PeerSessionView>;

/** Who dials this node's gateway, and the sessions with other nodes, both as they are at this moment. */
export const PeersReport = z.object({
  schema: z.literal(1),
  overlay: OverlayState,
  clients: z.array(ClientView).max(10_000),
  sessions: z.array(PeerSessionView).max(20_000),
});
export type PeersReport = z.infer<typeof PeersReport>;

/** Whom this node must reach, for somebody who finds out whether it can. */
export const NetworkTargets = z.object({
  schema: z.literal(1),
  /** Absent until the node is registered. `pins` are the key hashes trusted whatever the certificate says (RFC 7469 §2.4). */
  controlPlane: z
    .object({ url: z.string().max(512), session: z.string().max(512), pins: z.array(Base64Url32).max(8) })
    .optional(),
  /** With the password that it may have: this is for root. */
  proxy: z.object({ url: z.string().max(512), noProxy: z.array(z.string().max(256)).max(256) }).optional(),
  /** `key` is the RFC 7638 thumbprint that proves the gateway. */
  paths: z.array(MeshPath.extend({ name: Name, key: Base64Url32.optional() })).max(1024),
});
export type NetworkTargets = z.infer<typeof NetworkTargets>;
