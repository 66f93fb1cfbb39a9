import { z } from "zod";
import { ConfirmRequest } from "../values/commit.ts";
import { KNOWN_FEATURES, Requires } from "../values/features.ts";
import { RegistryPlace } from "./registry.ts";
import { Restriction } from "../values/restriction.ts";
import { sectionNames, type SectionName } from "../sections/sections.ts";
import {
  Fqdn,
  JsonObject,
  LifecycleState,
  NodeName,
  NodeState,
  NodeType,
  Tags,
  Text512,
  Uid,
} from "../values/values.ts";

export { KNOWN_FEATURES } from "../values/features.ts";

const sections = Object.fromEntries(sectionNames.map((name) => [name, z.exactOptional(JsonObject)]));

/**
 * Desired configuration by section; a section without a schema of its own is any JSON object. Sections of another version are
 * dropped, since a newer control plane must not leave older nodes without configuration.
 */
export const Config = z.object(sections as Record<SectionName, z.ZodExactOptional<typeof JsonObject>>);
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
  /** Present only while the node is held INACTIVE, regardless of its own state. */
  restricted: Restriction.optional(),
  lifecycleState: LifecycleState.optional(),
  cluster: Fqdn.optional(),
  tags: Tags,
  /** Settings of the control plane's own: how often to report, where to measure. */
  settings: z.object({ speedTestUrl: Text512.optional() }),
  config: Config,
  /** Registry of the organization's own images. */
  registry: RegistryPlace.optional(),
  /** Confirmation of this version's change; the default if absent. */
  confirm: ConfirmRequest.optional(),
  requires: Requires,
});
export type NodeDocument = z.infer<typeof NodeDocument>;

/** The `cluster` document: what a member inherits. */
export const ClusterDocument = z.object({
  fqdn: Fqdn,
  members: z.array(Uid).max(16),
  /** Present only for a node that is held INACTIVE: the document then has no section but `network`. */
  restricted: Restriction.optional(),
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
  /** Names in this node's sections that are those of clusters, which cannot be destinations yet. */
  clusters: z.array(z.string().min(1).max(253)).max(10_000).optional(),
  requires: Requires,
});
export type DomainDocument = z.infer<typeof DomainDocument>;

/** Names of the sections in a document's raw body that this build does not know. */
export function unknownSections(body: JsonObject): readonly string[] {
  const { config } = body;
  if (typeof config !== "object" || config === null) return [];
  return Object.keys(config).filter((name) => !Object.hasOwn(sections, name));
}

/** Items that this build can use, and the others by their place in the list and the features they lack. */
export interface SplitItems {
  readonly usable: JsonObject[];
  readonly refused: readonly { readonly index: number; readonly missing: readonly string[] }[];
}

/** Splits items by whether every feature that they require is known. One whose `requires` cannot be read is refused too. */
export function splitByFeatures(items: readonly JsonObject[], known: ReadonlySet<string> = KNOWN_FEATURES): SplitItems {
  const refused: { index: number; missing: readonly string[] }[] = [];
  const usable = items.filter((item, index) => {
    const parsed = Requires.safeParse(item["requires"]);
    const missing = parsed.success
      ? (parsed.data ?? []).filter((feature) => !known.has(feature))
      : ["what cannot be read"];
    if (missing.length > 0) refused.push({ index, missing });
    return missing.length === 0;
  });
  return { usable, refused };
}
