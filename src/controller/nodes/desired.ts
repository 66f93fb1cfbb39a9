import type { ShadowMap } from "../../protocol/values/shadow.ts";

/** A document whose version a node has not acknowledged. */
export interface UnacknowledgedDocument {
  readonly node: string;
  readonly name: string;
  /** Subject of the document: the node, its cluster or its domain; earlier clusters stay. */
  readonly sub: string;
  readonly version: number;
}

/**
 * Returns the desired part of a shadow: the newest version of each unacknowledged document, under the key that the node reports it by.
 * Pure.
 */
export function desiredOf(
  node: { readonly uid: string; readonly cluster: string | undefined; readonly domain: string },
  documents: readonly UnacknowledgedDocument[],
): ShadowMap {
  if (documents.length === 0) return {};
  const subjects = new Set([node.uid, node.cluster, node.domain]);
  const current = documents.filter(({ sub }) => subjects.has(sub));
  return Object.fromEntries(current.map(({ name, version }) => [`document.${name}.version`, version]));
}
