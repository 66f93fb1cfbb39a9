import type { NodeDocument } from "../../protocol/documents/documents.ts";

/**
 * Reports whether the document makes this node the active member of a cluster, its role while there is no election. An INACTIVE node never
 * is.
 */
export function isActiveMember(node: NodeDocument | undefined): boolean {
  return node?.cluster !== undefined && node.state !== "INACTIVE" && node.config.cluster?.["master"] === true;
}
