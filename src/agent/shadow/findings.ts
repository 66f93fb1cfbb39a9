import type { Config } from "../../protocol/documents/documents.ts";
import type { Issue } from "../../protocol/documents/reconcile.ts";

/** A node's own item that the cluster's item for the same thing overrides. */
export interface Shadowed {
  readonly path: string;
  /** The path of the cluster's item. */
  readonly by: string;
}

/** The configuration a node applies, merged from its own and its cluster's. */
export interface Effective {
  readonly config: Config;
  readonly shadowed: readonly Shadowed[];
  readonly errors: readonly Issue[];
}

/** Collects the overridden items and the errors of a merge. */
export interface Findings {
  readonly shadowed: Shadowed[];
  readonly errors: Issue[];
}
