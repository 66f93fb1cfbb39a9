import type { ClusterDocument, NodeDocument } from "../../protocol/documents/documents.ts";
import { UNAUTHORIZED_IP } from "../../protocol/values/restriction.ts";
import type { ClusterRecord, NodeRecord } from "../fleet.ts";
import { permittedConfig, stateOf, type IpLock } from "./ip-lock.ts";
import { defined } from "../../lib/defined.ts";

/** How far ahead of its own count a control plane follows a node, so that a damaged number cannot use the counter up. */
export const MAX_VERSION_JUMP = 2 ** 32;

type DocumentNode = Omit<
  NodeRecord,
  | "isOnline"
  | "lastIp"
  | "lockedTo"
  | "lastConnect"
  | "disconnectTime"
  | "heartbeat"
  | "reported"
  | "applied"
  | "keys"
  | "device"
  | "createdAt"
>;

/** The body of a node's own document. Pure; the order of its members is fixed, so equal content is equal text. */
export function nodeDocument(
  node: DocumentNode,
  settings: NodeDocument["settings"],
  registry?: NodeDocument["registry"],
): NodeDocument {
  return {
    uid: node.uid,
    name: node.name,
    fqdn: node.fqdn,
    domain: node.domain,
    org: node.org,
    type: node.type,
    state: stateOf(node),
    ...restrictionOf(node),
    ...defined({ lifecycleState: node.lifecycleState, cluster: node.cluster }),
    tags: sorted(node.tags),
    settings,
    config: sorted(permittedConfig(node, node.config)),
    ...(registry === undefined || node.unauthorizedIp !== undefined || node.type !== "Node" ? {} : { registry }),
    ...defined({ confirm: node.confirm }),
  };
}

/** The body of the `cluster` document for a member. Pure. */
export function clusterDocument(cluster: ClusterRecord, member: IpLock): ClusterDocument {
  return {
    fqdn: cluster.fqdn,
    members: [...cluster.members].sort(),
    ...restrictionOf(member),
    tags: sorted(cluster.tags),
    config: sorted(permittedConfig(member, cluster.config)),
  };
}

function restrictionOf({ unauthorizedIp }: IpLock): Pick<NodeDocument, "restricted"> {
  return unauthorizedIp === undefined ? {} : { restricted: { code: UNAUTHORIZED_IP, address: unauthorizedIp } };
}

/** The version that content gets, or undefined when it is what is stored. `highest` counts every subject a document of this name had. */
export function nextVersion(
  stored: { readonly hash: string } | undefined,
  hash: string,
  highest: number,
): number | undefined {
  return stored?.hash === hash ? undefined : highest + 1;
}

/** What to do about a node that holds a version we never gave: follow it, or refuse a leap. Pure. */
export function judgeHave(ours: number, have: number): "fine" | "restored" | "refused" {
  if (have <= ours) return "fine";
  return have - ours <= MAX_VERSION_JUMP && have < Number.MAX_SAFE_INTEGER ? "restored" : "refused";
}

function sorted<T extends Readonly<Record<string, unknown>>>(record: T): T {
  return Object.fromEntries(Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1))) as T;
}
