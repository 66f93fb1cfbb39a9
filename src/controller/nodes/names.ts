import { InputError } from "../../errors.ts";

/** Nodes and clusters, whose names are unique among both. */
export interface NameHolders {
  readonly nodes: { byFqdn(fqdn: string): Promise<unknown> };
  readonly clusters: { get(fqdn: string): Promise<unknown> };
}

/** Checks that no node or cluster has a name. @throws {InputError} `name-taken` */
export async function checkNameFree({ nodes, clusters }: NameHolders, fqdn: string): Promise<void> {
  if ((await nodes.byFqdn(fqdn)) === undefined && (await clusters.get(fqdn)) === undefined) return;
  throw new InputError("name-taken", `${fqdn} already exists; choose another name`, { details: { field: "name" } });
}
