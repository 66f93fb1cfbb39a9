import { normaliseConnectors } from "../../protocol/sections/connectors/connectors.ts";
import { isOwnName } from "../../protocol/documents/own-name.ts";
import type { SectionName } from "../../protocol/sections/sections.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { forbidden, type Caller } from "../http/caller.ts";
import type { NodeStore, StoredNode } from "../nodes/store.ts";

const PERMISSION = "nodes::configure:connectors";

/** Whether a caller may configure connectors on a node, by resource name; undefined if nothing is asked. */
export type MayConnect = ((resource: string) => boolean) | undefined;

/** Returns the destinations that a caller may choose. Nothing is asked for other sections, and with the permission on every node. */
export async function destinationsOf(caller: Caller, section: SectionName): Promise<MayConnect> {
  if (section !== "connectors" || caller.reach([PERMISSION], tgrn.node("")) === "all") return undefined;
  return caller.among([PERMISSION]);
}

/**
 * Rejects connectors to a node on which the caller may not configure connectors. Destinations of the stored section are exempt. An unknown
 * name is rejected like a forbidden node: such a node may register later, and names must not be guessable.
 * @throws {InputError} `forbidden`
 */
export async function requireDestinations(
  nodes: Pick<NodeStore, "called">,
  mayConnect: MayConnect,
  node: StoredNode,
  body: JsonObject,
): Promise<void> {
  if (mayConnect === undefined) return;
  const stored = new Set(destinations(node, node.config.connectors ?? {}).map(({ key }) => key));
  const added = destinations(node, body).filter(({ key }) => !stored.has(key));
  if (added.length === 0) return;
  const names = [...new Set(added.map(({ name }) => name))];
  const uids = await uidsByName(nodes, names);
  for (const name of names) {
    // An unknown name stands for any node that may get it later.
    const resources = (uids.get(name) ?? ["*"]).map(tgrn.node);
    if (!resources.every(mayConnect)) throw forbidden([PERMISSION], tgrn.node(name));
  }
}

/** Returns the destinations on other nodes of a node's enabled connectors. */
function destinations(
  node: StoredNode,
  section: JsonObject,
): readonly { readonly name: string; readonly key: string }[] {
  return normaliseConnectors(section, { nodeType: node.type })
    .items.filter((item) => item.enabled && !isOwnName(node, item.node))
    .map(({ node: name, target, transport }) => ({ name, key: JSON.stringify([name, target, transport]) }));
}

async function uidsByName(
  nodes: Pick<NodeStore, "called">,
  names: readonly string[],
): Promise<ReadonlyMap<string, readonly string[]>> {
  const found = new Map<string, string[]>();
  for (const { uid, name, fqdn } of await nodes.called(names)) {
    for (const alias of [uid, name, fqdn]) found.set(alias, [...(found.get(alias) ?? []), uid]);
  }
  return found;
}
