import type { Config } from "../../protocol/documents/documents.ts";
import type { JsonObject } from "../../protocol/values/values.ts";

/** Returns the configuration of a node that leaves its cluster: without heartbeat, status endpoint and role. Pure. */
export function withoutMembership({ cluster: _left, ...config }: Config): Config {
  return config;
}

/**
 * Returns the members whose section `cluster` changes when `uid` becomes the configured active one, each with its new section; none if it
 * is that already. Pure.
 */
export function promotedRoles<Node extends { readonly uid: string; readonly config: Config }>(
  members: readonly Node[],
  uid: string,
  nowSeconds: number,
): readonly (readonly [node: Node, section: JsonObject])[] {
  const isDone = members.every((node) => isActive(node) === (node.uid === uid));
  if (isDone) return [];
  const versionCounter = Math.max(0, ...members.map(versionOf)) + 1;
  return members.map((node) => {
    const role = { master: node.uid === uid, versionCounter, updateTime: nowSeconds };
    return [node, { ...node.config.cluster, ...role }];
  });
}

const isActive = ({ config }: { readonly config: Config }): boolean => config.cluster?.["master"] === true;

function versionOf({ config }: { readonly config: Config }): number {
  const version = config.cluster?.["versionCounter"];
  return typeof version === "number" && Number.isSafeInteger(version) ? version : 0;
}
