import { isForbidden } from "../../../lib/net/forbidden-address.ts";
import type { Connector } from "./connectors.ts";
import { configIssue, type ConfigIssue } from "../common/issue.ts";

/** Names the connectors that lead to an address on another node that no node lets others reach; `isHere` tells the node's own names. */
export function forbiddenTargets(
  connectors: readonly Pick<Connector, "id" | "path" | "node" | "target">[],
  isHere: (node: string) => boolean,
): readonly ConfigIssue[] {
  return connectors.flatMap((connector) => {
    const { node, target } = connector;
    if (!("host" in target) || isHere(node) || !isForbidden(target.host)) return [];
    const text = `${target.host} is link-local, multicast, reserved or a cloud's metadata: no node lets others reach it`;
    return configIssue("E_ADDRESS_FORBIDDEN", connector, "service", text);
  });
}
