import { z } from "zod";
import { Requires } from "../../values/features.ts";
import { Base64Url32, Fqdn, Host, NodeName, NodeType, Port, Uid } from "../../values/values.ts";

/** Nodes that may dial a gateway: all of the domain, listed ones, or all and other gateways. */
export const GatewayType = z.enum(["public", "private", "hub"]);
export type GatewayType = z.infer<typeof GatewayType>;

/** A gateway that this node is to dial, as it advertises itself. */
export const DomainGateway = z.object({
  type: GatewayType,
  host: Host,
  port: Port,
  udpPort: Port.optional(),
  /** Whether it asks nodes that dial it to trace the path to it. */
  requestsHops: z.literal(true).optional(),
});
export type DomainGateway = z.infer<typeof DomainGateway>;

/** A peer in the `domain` document: `key` is the RFC 7638 thumbprint of its overlay key. */
export const DomainPeer = z.object({
  uid: Uid,
  name: NodeName,
  fqdn: Fqdn,
  type: NodeType,
  key: Base64Url32,
  /** Only where this node is to dial it. */
  gateway: DomainGateway.optional(),
  /** Whether it may dial this node's own gateway. */
  mayDial: z.literal(true).optional(),
  /** Whether it dials this node's gateway and is a hub, through which its nodes are reached. Of a gateway to dial, the type tells the same. */
  isHub: z.literal(true).optional(),
  /** Whether it dials this node's gateway and is a gateway too: it names the source node of each stream that it relays. */
  isGateway: z.literal(true).optional(),
  requires: Requires,
});
export type DomainPeer = z.infer<typeof DomainPeer>;

/** A grant to `source` on this node: a service by name, or a literal `IPv4:port`. */
export const DomainGrant = z.object({
  source: Uid,
  service: z.string().min(1).max(253),
  protocol: z.enum(["tcp", "udp"]),
  requires: Requires,
});
export type DomainGrant = z.infer<typeof DomainGrant>;
