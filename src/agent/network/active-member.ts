import type { NodeDocument } from "../../protocol/documents/documents.ts";

/**
 * Whether the document makes this node the active member of a cluster, which is its role for as long as nobody elects one. A node that is
 * INACTIVE has no part in it.
 */
export function isActiveMember(node: NodeDocument | undefined): boolean {
  return node?.cluster !== undefined && node.state !== "INACTIVE" && node.config.cluster?.["master"] === true;
}
