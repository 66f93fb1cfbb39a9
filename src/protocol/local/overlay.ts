import { z } from "zod";
import { MAX_SERVICE_USERS } from "./api.ts";
import { Issue } from "../documents/reconcile.ts";
import { Port, Text64, Text253, Text1024, Text4096, UnixMilliseconds, Version } from "../values/values.ts";

/**
 * State of the overlay program, with the time of the change in Unix milliseconds and the reason. `off` means that no service or connector
 * is configured.
 */
export const OverlayState = z.object({
  state: z.enum(["up", "down", "off"]),
  since: UnixMilliseconds,
  pid: z.int().min(1).optional(),
  reason: Text1024.optional(),
});
export type OverlayState = z.infer<typeof OverlayState>;

/** Reason of a state other than the configured one. */
export const ItemReason = z.object({ code: Text64, message: z.string().max(2048) });
export type ItemReason = z.infer<typeof ItemReason>;

const Id = Text253;

const Transport = z.enum(["tcp", "udp"]);

const ByReason = z.record(Text64, Version);

const Description = Text4096;

const Listener = z.object({
  transport: Transport,
  port: Port,
  nic: Text64.optional(),
  address: Text64.optional(),
  /** The addresses it is bound to. */
  bound: z.array(Text64).max(256),
});

/** Counters of a connector since its listener started. A refused flow never reached its target. */
export const ConnectorCounters = z.object({
  flowsActive: Version,
  flowsTotal: Version,
  /** Bytes that clients sent, and that they were sent. */
  bytesIn: Version,
  bytesOut: Version,
  datagramsDropped: Version,
  refusals: ByReason,
  errors: ByReason,
});
export type ConnectorCounters = z.infer<typeof ConnectorCounters>;

/**
 * A connector of the applied configuration. `waiting`: it should listen and does not yet; `failed`: it cannot listen, or no flow can
 * pass; `rejected`: its definition is invalid. A listening one with a reason passes no flows.
 */
export const ConnectorView = z.object({
  id: Id,
  description: Description.optional(),
  state: z.enum(["listening", "failed", "waiting", "off", "rejected"]),
  reason: ItemReason.optional(),
  /** Configured values that are not applied, regardless of the connector's state. */
  ignored: z.array(ItemReason).max(16).optional(),
  /** As it is written; `transport` is what is on the wire. */
  protocol: z.string().max(16).optional(),
  listen: Listener.optional(),
  destination: z
    .object({
      node: Text253,
      service: Text253.optional(),
      host: Text253.optional(),
      port: Port.optional(),
    })
    .optional(),
  limits: z
    .object({
      /** Each way, shared by all flows; absent means unlimited. */
      bitsPerSecond: z.number().min(1).optional(),
      maxFlows: Version,
      /** Blocks that may connect; absent means everybody. */
      sources: z.array(Text64).max(1024).optional(),
    })
    .optional(),
  /** Absent while nothing counts. */
  counters: ConnectorCounters.optional(),
});
export type ConnectorView = z.infer<typeof ConnectorView>;

/** Every connector of the applied configuration; `issues` concern the section as a whole. */
export const ConnectorsReport = z.object({
  schema: z.literal(1),
  overlay: OverlayState,
  issues: z.array(Issue).max(100),
  connectors: z.array(ConnectorView).max(20_000),
});
export type ConnectorsReport = z.infer<typeof ConnectorsReport>;

/** A connector that leads to a service: where it listens, and what it is called. */
export const ServiceUser = Listener.omit({ bound: true }).extend({ id: Id, description: Description.optional() });
export type ServiceUser = z.infer<typeof ServiceUser>;

/** A service of the applied configuration; its states have the meaning of a connector's. */
export const ServiceView = z.object({
  id: Id,
  /** Absent if it is invalid. */
  name: Text253.optional(),
  description: Description.optional(),
  state: z.enum(["offered", "waiting", "off", "rejected"]),
  reason: ItemReason.optional(),
  protocol: z.string().max(16).optional(),
  target: z.object({ transport: Transport, host: Text253, port: Port }).optional(),
  /** Absent if its health is not checked. */
  health: z.object({ state: z.enum(["up", "down", "unknown"]), since: UnixMilliseconds }).optional(),
  /** Ids of this node's connectors to it; `usedBy` has details of the first ones. */
  connectors: z.array(Id).max(20_000),
  usedBy: z.array(ServiceUser).max(MAX_SERVICE_USERS).optional(),
});
export type ServiceView = z.infer<typeof ServiceView>;

/** Every service of the applied configuration; `issues` concern the section as a whole. */
export const ServicesReport = z.object({
  schema: z.literal(1),
  overlay: OverlayState,
  issues: z.array(Issue).max(100),
  services: z.array(ServiceView).max(20_000),
});
export type ServicesReport = z.infer<typeof ServicesReport>;
