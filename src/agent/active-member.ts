import type { NodeDocument } from "../protocol/documents.ts";

/** Whether the document makes this node the active member of a cluster, which is its role for as long as nobody elects one. */
export function isActiveMember(node: NodeDocument | undefined): boolean {
  return node?.cluster !== undefined && node.config.cluster?.["master"] === true;
}
