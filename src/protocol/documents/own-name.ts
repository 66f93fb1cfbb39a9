import type { NodeDocument } from "./documents.ts";

type OwnNames = Pick<NodeDocument, "uid" | "name" | "fqdn" | "cluster">;

/** Reports whether a destination is the node of this document. Names are compared exactly. */
export function isOwnName(node: OwnNames | undefined, name: string): boolean {
  const { uid, name: own, fqdn, cluster } = node ?? {};
  return name === "local" || [uid, own, fqdn, cluster, cluster?.split(".")[0]].includes(name);
}

/** Returns the message for a destination that is a cluster, with the remedy. */
export function clusterText(name: string): string {
  return `${name} is a cluster, and clusters cannot be destinations yet (unsupported: clusters): name one of its members`;
}

/** Returns the message for a destination that is no known node, with the remedy. Names are lower-case. */
export function unknownNodeText(name: string): string {
  const exact = name.toLowerCase();
  const hint = exact === name ? "" : `node names are compared exactly and are lower-case, such as ${exact}; `;
  return `this node knows no node ${name}: ${hint}check the name, and that the node is registered in this domain and ACTIVE`;
}
