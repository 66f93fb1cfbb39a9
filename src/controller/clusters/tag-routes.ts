import { z } from "zod";
import { InputError } from "../../errors.ts";
import { FORBIDDEN_KEYS } from "../../lib/formats/strict-json.ts";
import { firstIssueText } from "../../protocol/values/issue-text.ts";
import { Fqdn, Tags, TagText, Uid } from "../../protocol/values/values.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { clusterChangeAnswer, clusterChangeResponse } from "./routes.ts";
import { changeAnswer, changeResponse } from "../nodes/routes.ts";
import { Violations } from "../http/problem.ts";
import { route, type Route } from "../http/route.ts";
import { badBody, Empty, notFound, refusals } from "../http/shapes.ts";
import { MAX_TAGS } from "../nodes/fields.ts";
import type { NodeService } from "../nodes/service.ts";
import type { ClusterService } from "./service.ts";

type Tagged = { readonly tags: Readonly<Record<string, string>> };

const NodeTag = z.object({ nodeID: Uid, tagName: z.string() });
const ClusterTag = z.object({ clusterFQDN: Fqdn, tagName: z.string() });
const NodeOnly = NodeTag.pick({ nodeID: true });
const ClusterOnly = ClusterTag.pick({ clusterFQDN: true });
const TagBody = z.strictObject({ value: TagText });
const TagsBody = z.strictObject({ tags: Tags });
/** Accepts null as well, for no tags. */
const tagsBody = { schema: z.strictObject({ tags: Tags.nullable() }), described: TagsBody };

const onNode = {
  to: "resource",
  permissions: ["nodes::tag"],
  resource: ({ nodeID }: z.infer<typeof NodeOnly>) => tgrn.node(nodeID),
} as const;
const onCluster = {
  to: "resource",
  permissions: ["nodes::tag"],
  resource: ({ clusterFQDN }: z.infer<typeof ClusterOnly>) => tgrn.cluster(clusterFQDN),
} as const;

export interface TagRouteDeps {
  readonly nodes: NodeService;
  readonly clusters: ClusterService;
}

export function tagRoutes({ nodes, clusters }: TagRouteDeps): readonly Route[] {
  const node = { ...changeAnswer, ...refusals, ...notFound };
  const removed = { 200: { description: "Removed", schema: Empty }, ...refusals, ...notFound };
  const cluster = { ...clusterChangeAnswer, ...refusals, ...notFound };
  return [
    route({
      method: "PUT",
      path: "/node/{nodeID}/tags",
      operationId: "setNodeTags",
      summary: "Replace all tags of a node",
      tag: "Nodes",
      access: onNode,
      params: NodeOnly,
      body: tagsBody,
      answers: { ...node, ...badBody },
      handle: async ({ params: { nodeID }, body: { tags }, caller }) =>
        changeResponse(await nodes.setTags(nodeID, tags ?? {}, caller.name), caller, { tags: tags ?? {} }),
    }),
    route({
      method: "PUT",
      path: "/cluster/{clusterFQDN}/tags",
      operationId: "setClusterTags",
      summary: "Replace all tags of a cluster",
      tag: "Clusters",
      access: onCluster,
      params: ClusterOnly,
      body: tagsBody,
      answers: { ...cluster, ...badBody },
      handle: async ({ params: { clusterFQDN }, body: { tags }, caller }) =>
        clusterChangeResponse(await clusters.setTags(clusterFQDN, tags ?? {}, caller.name), caller, {
          tags: tags ?? {},
        }),
    }),
    route({
      method: "PUT",
      path: "/node/{nodeID}/tag/{tagName}",
      operationId: "setNodeTag",
      summary: "Add or update a tag of a node",
      tag: "Nodes",
      access: onNode,
      params: NodeTag,
      body: { schema: TagBody },
      answers: { ...node, ...badBody },
      handle: async ({ params: { nodeID, tagName }, body: { value }, caller }) => {
        return changeResponse(
          await nodes.setTag(nodeID, tagName, value, caller.name, (node) => checkSet(node, tagName)),
          caller,
          {
            tags: { [tagName]: value },
          },
        );
      },
    }),
    route({
      method: "DELETE",
      path: "/node/{nodeID}/tag/{tagName}",
      operationId: "deleteNodeTag",
      summary: "Remove a tag from a node",
      tag: "Nodes",
      access: onNode,
      params: NodeTag,
      answers: removed,
      handle: async ({ params: { nodeID, tagName }, caller }) => {
        await nodes.setTag(nodeID, tagName, undefined, caller.name, (node) => checkRemove(node, tagName));
        return Response.json({});
      },
    }),
    route({
      method: "PUT",
      path: "/cluster/{clusterFQDN}/tag/{tagName}",
      operationId: "setClusterTag",
      summary: "Add or update a tag of a cluster",
      tag: "Clusters",
      access: onCluster,
      params: ClusterTag,
      body: { schema: TagBody },
      answers: { ...cluster, ...badBody },
      handle: async ({ params: { clusterFQDN, tagName }, body: { value }, caller }) => {
        const changed = await clusters.setTag(clusterFQDN, tagName, value, caller.name, (cluster) =>
          checkSet(cluster, tagName),
        );
        return clusterChangeResponse(changed, caller, { tags: { [tagName]: value } });
      },
    }),
    route({
      method: "DELETE",
      path: "/cluster/{clusterFQDN}/tag/{tagName}",
      operationId: "deleteClusterTag",
      summary: "Remove a tag from a cluster",
      tag: "Clusters",
      access: onCluster,
      params: ClusterTag,
      answers: removed,
      handle: async ({ params: { clusterFQDN, tagName }, caller }) => {
        await clusters.setTag(clusterFQDN, tagName, undefined, caller.name, (cluster) => checkRemove(cluster, tagName));
        return Response.json({});
      },
    }),
  ];
}

function checkSet({ tags }: Tagged, name: string): void {
  const parsed = TagText.safeParse(name);
  if (!parsed.success) throw new Violations([`tagName: ${firstIssueText(parsed.error)}`]);
  // A node would reject a document with such a key.
  if (FORBIDDEN_KEYS.has(name)) throw new Violations([`tagName: the key ${name} is not allowed`]);
  if (!Object.hasOwn(tags, name) && Object.keys(tags).length >= MAX_TAGS) {
    throw new Violations([`tagName: cannot add a tag: the limit of ${MAX_TAGS} tags is reached`]);
  }
}

function checkRemove({ tags }: Tagged, name: string): void {
  if (!Object.hasOwn(tags, name)) throw new InputError("not-found", `there is no tag ${name.slice(0, 128)}`);
}
