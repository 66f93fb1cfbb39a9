import type { NodeDocument } from "./documents.ts";

type OwnNames = Pick<NodeDocument, "uid" | "name" | "fqdn" | "cluster">;

/** Whether a destination, as it is written and however it is capitalised, is the node of this document. */
export function isOwnName(node: OwnNames | undefined, name: string): boolean {
  const { uid, name: own, fqdn, cluster } = node ?? {};
  return name === "local" || [uid, own, fqdn, cluster, cluster?.split(".")[0]].includes(name.toLowerCase());
}
