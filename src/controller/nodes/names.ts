import { InputError } from "../../errors.ts";

/** Nodes and clusters, whose names are unique among both. */
export interface NameHolders {
  readonly nodes: { byFqdn(fqdn: string): unknown };
  readonly clusters: { get(fqdn: string): unknown };
}

/** Checks that no node or cluster has a name. @throws {InputError} `name-taken` */
export function checkNameFree({ nodes, clusters }: NameHolders, fqdn: string): void {
  if (nodes.byFqdn(fqdn) === undefined && clusters.get(fqdn) === undefined) return;
  throw new InputError("name-taken", `${fqdn} already exists; choose another name`, { details: { field: "name" } });
}
