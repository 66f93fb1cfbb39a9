import { z } from "zod";
import { Requires } from "./features.ts";
import { sectionNames } from "./sections.ts";
import { Fqdn, JsonObject, LifecycleState, NodeName, NodeState, NodeType, Tags, Uid } from "./values.ts";

export { KNOWN_FEATURES } from "./features.ts";

/** Desired configuration by section; a section without a schema of its own is any JSON object. */
export const Config = z.partialRecord(z.enum(sectionNames), JsonObject);
export type Config = z.infer<typeof Config>;

/** The `node` document: the node's record and its own sections. */
export const NodeDocument = z.object({
  uid: Uid,
  name: NodeName,
  fqdn: Fqdn,
  domain: Fqdn,
  org: z.uuid(),
  type: NodeType,
  state: NodeState,
  lifecycleState: LifecycleState.optional(),
  cluster: Fqdn.optional(),
  tags: Tags,
  /** Settings of the control plane's own: how often to report, where to measure. */
  settings: z.object({ speedTestUrl: z.string().max(512).optional() }),
  config: Config,
  requires: Requires,
});
export type NodeDocument = z.infer<typeof NodeDocument>;

/** The `cluster` document: what a member inherits. */
export const ClusterDocument = z.object({
  fqdn: Fqdn,
  members: z.array(Uid).max(16),
  tags: Tags,
  config: Config,
  requires: Requires,
});
export type ClusterDocument = z.infer<typeof ClusterDocument>;

/** The `domain` document: the peers, grants and policy this node must know. */
export const DomainDocument = z.object({
  fqdn: Fqdn,
  peers: z.array(JsonObject).max(10_000),
  grants: z.array(JsonObject).max(100_000),
  requires: Requires,
});
export type DomainDocument = z.infer<typeof DomainDocument>;
