import type { ClusterDocument, NodeDocument } from "../../../protocol/documents/documents.ts";
import { UNAUTHORIZED_IP } from "../../../protocol/values/restriction.ts";
import { permittedConfig, stateOf, type IpLock } from "../../nodes/ip-lock.ts";
import { defined } from "../../../lib/defined.ts";
import type { NodeContent } from "../../nodes/store.ts";
import type { ClusterRecord } from "../../clusters/records.ts";

/** Largest accepted lead of a node's version over the control plane's. A corrupted number must not exhaust the counter. */
const MAX_VERSION_JUMP = 2 ** 32;

/** Returns the body of a node's own document. Pure; the member order is fixed, so equal content gives equal text. */
export function nodeDocument(
  node: NodeContent,
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

/** Returns the body of the `cluster` document for a member. Pure. */
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

/** Compares a node's version with ours: `restored` if the node's is newer, `refused` if it is too far ahead. Pure. */
export function judgeHave(ours: number, have: number): "fine" | "restored" | "refused" {
  if (have <= ours) return "fine";
  return have - ours <= MAX_VERSION_JUMP && have < Number.MAX_SAFE_INTEGER ? "restored" : "refused";
}

function sorted<T extends Readonly<Record<string, unknown>>>(record: T): T {
  return Object.fromEntries(Object.entries(record).sort(([a], [b]) => (a < b ? -1 : 1))) as T;
}
