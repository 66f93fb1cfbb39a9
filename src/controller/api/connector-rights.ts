import { normaliseConnectors } from "../../protocol/sections/connectors/connectors.ts";
import { isOwnName } from "../../protocol/documents/own-name.ts";
import type { SectionName } from "../../protocol/sections/sections.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import type { Fleet, NodeRecord } from "../fleet.ts";
import { tgrn } from "../model/permissions.ts";
import { forbidden, type Caller } from "./caller.ts";

const PERMISSION = "nodes::configure:connectors";

/**
 * Refuses connectors that lead to a node on which the caller may not configure connectors either. What the stored section leads to
 * already needs nothing. A name that no node has is refused like a node out of reach: such a node may be registered later, and names
 * cannot be guessed. @throws {InputError} `forbidden`.
 */
export function requireDestinations(
  fleet: Fleet,
  caller: Caller,
  section: SectionName,
  node: NodeRecord,
  body: JsonObject,
): void {
  if (section !== "connectors") return;
  const before = new Set(destinations(node, node.config.connectors ?? {}).map(({ key }) => key));
  const added = destinations(node, body).filter(({ key }) => !before.has(key));
  if (added.length === 0) return;
  const uids = uidsByName(fleet);
  for (const name of new Set(added.map(({ name }) => name))) {
    // A name without an owner stands for any node that may be given it.
    const resources = (uids.get(name) ?? ["*"]).map(tgrn.node);
    if (!resources.every((resource) => caller.may([PERMISSION], resource)))
      throw forbidden([PERMISSION], tgrn.node(name));
  }
}

/** The destinations on other nodes of a node's enabled connectors. */
function destinations(
  node: NodeRecord,
  section: JsonObject,
): readonly { readonly name: string; readonly key: string }[] {
  return normaliseConnectors(section, { nodeType: node.type })
    .items.filter((item) => item.enabled && !isOwnName(node, item.node))
    .map(({ node: name, target, transport }) => ({ name, key: JSON.stringify([name, target, transport]) }));
}

function uidsByName(fleet: Fleet): ReadonlyMap<string, readonly string[]> {
  const found = new Map<string, string[]>();
  for (const { uid, name, fqdn } of fleet.nodes()) {
    for (const called of [uid, name, fqdn]) found.set(called, [...(found.get(called) ?? []), uid]);
  }
  return found;
}
