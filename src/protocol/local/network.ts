import { z } from "zod";
import { NETWORK_REPORT_LIMITS } from "./api.ts";
import { Text64, Version } from "../values/values.ts";

const Name = Text64;

const Address = Text64;

/** A link as the kernel has it. */
const LinkView = z.object({
  name: Name,
  /** `vlan`, `veth`, …; absent for a device. */
  kind: Name.optional(),
  parent: Name.optional(),
  vlanId: Version.optional(),
  master: Name.optional(),
  mac: Name.optional(),
  mtu: Version,
  isUp: z.boolean(),
  hasCarrier: z.boolean(),
  /** This agent made it. */
  isOurs: z.boolean(),
});

const AddressView = z.object({ link: Name, address: Address, isOurs: z.boolean(), isDynamic: z.boolean() });

/** A route of an IPv4 table; 254 is main. */
export const RouteView = z.object({
  table: Version,
  kind: Name,
  destination: Address,
  via: Address.optional(),
  link: Name.optional(),
  metric: Version,
  /** rtm_protocol: 218 is ours. */
  protocol: Version,
  source: Address.optional(),
  isOurs: z.boolean(),
  /** Another one to the same destination is taken before it. */
  isBehind: z.boolean().optional(),
});
export type RouteView = z.infer<typeof RouteView>;

/** A policy rule; the lowest priority number comes first. */
export const RuleView = z.object({
  priority: Version,
  from: Address.optional(),
  to: Address.optional(),
  inLink: Name.optional(),
  outLink: Name.optional(),
  mark: Version.optional(),
  mask: Version.optional(),
  table: Version,
  /** Routes of the table with a prefix this long or shorter do not count. */
  suppressLength: Version.optional(),
  isOurs: z.boolean(),
});
export type RuleView = z.infer<typeof RuleView>;

const NeighbourView = z.object({ link: Name, address: Address, mac: Name.optional(), states: z.array(Name).max(8) });

/** Network of this machine: IPv4, in this network namespace only. */
export const NetworkReport = z.object({
  schema: z.literal(1),
  links: z.array(LinkView).max(NETWORK_REPORT_LIMITS.links),
  addresses: z.array(AddressView).max(NETWORK_REPORT_LIMITS.addresses),
  routes: z.array(RouteView).max(NETWORK_REPORT_LIMITS.routes),
  rules: z.array(RuleView).max(NETWORK_REPORT_LIMITS.rules),
  neighbours: z.array(NeighbourView).max(NETWORK_REPORT_LIMITS.neighbours),
  /** Total of each list that is truncated. */
  truncated: z.record(z.string().max(16), Version),
});
export type NetworkReport = z.infer<typeof NetworkReport>;

/** The route that a packet of this machine would take to an address, or that none leads there. */
export const RouteAnswer = z.object({
  schema: z.literal(1),
  to: Address,
  /** `unreachable` where no route leads there, or one that refuses. */
  kind: Name,
  via: Address.optional(),
  link: Name.optional(),
  source: Address.optional(),
  table: Version.optional(),
  /** The chosen route, if the kernel reports it. */
  matched: z.object({ destination: Address, protocol: Version, metric: Version, isOurs: z.boolean() }).optional(),
});
export type RouteAnswer = z.infer<typeof RouteAnswer>;
