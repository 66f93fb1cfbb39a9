import { z } from "zod";
import { InputError } from "../../errors.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { Base64Url32, Fqdn, LifecycleState, NodeName, NodeState, NodeType, Uid } from "../../protocol/values/values.ts";
import { effectiveTags } from "./fields.ts";
import { MAX_LOCK_BLOCKS } from "./ip-lock.ts";
import { ORGANIZATION, tgrn } from "../access/policies/permissions.ts";
import { ClientKey, KeyName, shownKeys } from "./client-keys.ts";
import { firstIssueText } from "../../protocol/values/issue-text.ts";
import { parseProjection, partsOf, projectNode } from "./projection.ts";
import { publicNode, type View } from "./public-node.ts";
import { forbidden, type Caller } from "../http/caller.ts";
import { Violations } from "../http/problem.ts";
import { hasTags, TagFilter } from "../http/query.ts";
import { route, type Route } from "../http/route.ts";
import { badBody, NodePart, notFound, PublicNode, refusals, Unset } from "../http/shapes.ts";
import { defined } from "../../lib/defined.ts";
import type { ListedNode, NodeRecord } from "./records.ts";
import type { NodeService } from "./service.ts";
import type { Licenses } from "./licenses.ts";

const tag = "Nodes";
// Names are case-insensitive and may end with the root's dot (RFC 4343, RFC 1034 §3.1).
const AnyFqdn = z
  .string()
  .max(254)
  .transform((text) => text.toLowerCase().replace(/\.$/, ""))
  .pipe(Fqdn);
const Block = z
  .string()
  .max(64)
  .transform((text, context) => {
    const block = parseCidr(text);
    if (block !== undefined && !block.hadHostBits) return block.text;
    const message = block === undefined ? "must be an address or a block" : `has host bits; the block is ${block.text}`;
    context.addIssue({ code: "custom", message });
    return z.NEVER;
  });
const License = z.string().meta({ examples: ["eyJhbGciOiJFZERTQSJ9.eyJuYW1lIjoiZWRnZS0yIn0.c2lnbmF0dXJl"] });
const NodeParams = z.object({ nodeID: Uid });
const JOIN = ["nodes::cluster"];
/** Response of `changeResponse`. */
export const changeAnswer = {
  200: {
    description: "The node; without `nodes::read` on it, only its `uid` and the written part",
    schema: z.union([PublicNode, NodePart]),
  },
} as const;
const nodeAnswer = { 200: { description: "The node", schema: PublicNode } } as const;
const onNode = ({ nodeID }: { readonly nodeID: string }): string => tgrn.node(nodeID);
const manageAccess = { to: "resource", permissions: ["nodes::manage"], resource: onNode } as const;

/** Returns a node. @throws {InputError} `not-found` */
export async function nodeOf(nodes: Pick<NodeService, "get">, uid: string): Promise<NodeRecord> {
  const record = await nodes.get(uid);
  if (record === undefined) throw new InputError("not-found", `there is no node ${uid}`);
  return record;
}

const nodeResponse = (record: NodeRecord, view: View): Response => Response.json(publicNode(record, view));

/** Returns the response to a change: the whole node if the caller may read it, otherwise its UID and the written part. */
export async function changeResponse(
  record: NodeRecord,
  caller: Caller,
  part: Readonly<Record<string, unknown>>,
): Promise<Response> {
  if (await caller.may(["nodes::read"], tgrn.node(record.uid))) return nodeResponse(record, "full");
  return Response.json({ uid: record.uid, ...part });
}

export interface NodeRouteDeps {
  readonly nodes: NodeService;
  readonly licenses: Licenses;
}

/** Routes of nodes, without configuration, tags and triggers. */
export function nodeRoutes({ nodes, licenses }: NodeRouteDeps): readonly Route[] {
  return [
    route({
      method: "GET",
      path: "/node",
      operationId: "listNodes",
      summary: "List appliances and agents",
      tag,
      access: { to: "kind", permissions: ["nodes::read"], kind: tgrn.node("") },
      query: z.object({
        cluster: Fqdn.optional(),
        tags: TagFilter,
        "projection[]": z
          .union([z.string(), z.array(z.string())])
          .optional()
          .meta({
            description:
              "Fields to show, also as `projection[N]`; parts of `config`, `shadow` and `keys` by `projection[N][M]=<segment>`, and the whole of the first two by `projection[N]` together with `cluster`",
          }),
      }),
      answers: {
        200: { description: "The nodes the caller may read", schema: z.array(PublicNode) },
        ...refusals,
      },
      handle: async ({ query, search, caller }) => {
        const projection = parseProjection(search, query.cluster !== undefined);
        const isAllShown = caller.reach(["nodes::read"], tgrn.node("")) === "all";
        const may = isAllShown ? undefined : await caller.among(["nodes::read"]);
        const show = (record: ListedNode) =>
          projection === undefined ? publicNode(record, "list") : projectNode(record, projection);
        const texts: string[] = [];
        for await (const page of nodes.pages(partsOf(projection, query.tags !== undefined), query)) {
          const shown = page
            .filter((record) => query.tags === undefined || hasTags(effectiveTags(record), query.tags))
            .filter(({ uid }) => may === undefined || may(tgrn.node(uid)))
            .map(show);
          if (shown.length > 0) texts.push(JSON.stringify(shown).slice(1, -1));
        }
        return new Response(`[${texts.join(",")}]`, { headers: { "content-type": "application/json" } });
      },
    }),
    route({
      method: "GET",
      path: "/node/license",
      operationId: "issueLicense",
      summary: "Generate a license that registers one new node",
      tag,
      access: { to: "resource", permissions: ["nodes::manage"], resource: () => ORGANIZATION },
      query: z.object({
        name: NodeName.meta({ examples: ["edge-2"] }),
        type: NodeType.default("Node"),
        jkt: Base64Url32.optional().meta({ description: "Thumbprint of an existing key (RFC 7638)" }),
        orderID: z.uuid().optional().meta({ description: "Provisioning order of the node" }),
      }),
      answers: {
        200: { description: "The license, a JWS", schema: License, mediaTypes: ["text/plain"] },
        ...refusals,
      },
      handle: async ({ query: { name, type, jkt, orderID }, caller }) => {
        const request = { name, type, user: caller.name, ...defined({ jkt, orderID }) };
        const license = await licenses.issue(request);
        return new Response(license, { headers: { "content-type": "text/plain; charset=utf-8" } });
      },
    }),
    route({
      method: "GET",
      path: "/node/by-fqdn/{fqdn}",
      operationId: "getNodeByFqdn",
      summary: "Get a node by its FQDN",
      tag,
      access: { to: "kind", permissions: ["nodes::read"], kind: tgrn.node("") },
      params: z.object({ fqdn: AnyFqdn }),
      answers: { ...nodeAnswer, ...refusals, ...notFound },
      handle: async ({ params: { fqdn }, caller }) => {
        const record = await nodes.byFqdn(fqdn);
        if (record !== undefined && (await caller.may(["nodes::read"], tgrn.node(record.uid))))
          return nodeResponse(record, "full");
        // An unknown name is refused like a node out of reach, in the same words, so that names cannot be guessed.
        await caller.require(["nodes::read"], tgrn.node(fqdn));
        throw new InputError("not-found", `there is no node ${fqdn}`);
      },
    }),
    route({
      method: "GET",
      path: "/node/{nodeID}",
      operationId: "getNode",
      summary: "Get a node with its complete configuration",
      tag,
      access: { to: "resource", permissions: ["nodes::read"], resource: onNode },
      params: NodeParams,
      answers: { ...nodeAnswer, ...refusals, ...notFound },
      handle: async ({ params: { nodeID } }) => nodeResponse(await nodeOf(nodes, nodeID), "detail"),
    }),
    route({
      method: "PUT",
      path: "/node/{nodeID}",
      operationId: "updateNode",
      summary: "Change the operational state or the cluster of a node",
      tag,
      access: manageAccess,
      params: NodeParams,
      body: {
        schema: z
          .strictObject({
            state: z.union([NodeState, Unset]),
            cluster: z.union([Fqdn, Unset]),
          })
          .refine(({ state, cluster }) => Boolean(state) || cluster !== undefined, "needs state or cluster")
          .meta({
            description:
              "`cluster` joins a cluster and also requires `nodes::cluster` on it; null or empty leaves the cluster. A `state` of null or empty changes nothing",
            examples: [{ state: "ACTIVE", cluster: null }],
          }),
      },
      answers: { ...changeAnswer, ...refusals, ...notFound, ...badBody },
      handle: async ({ params: { nodeID }, body: { state, cluster }, caller }) => {
        const change = defined({
          state: state || undefined,
          cluster: cluster === undefined ? undefined : cluster || null,
        });
        // Asked before the change and applied within it: the node may leave the cluster meanwhile.
        const resource = tgrn.cluster(cluster ?? "");
        const isPermitted = Boolean(cluster) && (await caller.may(JOIN, resource));
        const checkJoin = (): void => {
          if (!isPermitted) throw forbidden(JOIN, resource);
        };
        return changeResponse(
          await nodes.update(nodeID, change, caller.name, checkJoin),
          caller,
          defined({ ...change, cluster }),
        );
      },
    }),
    route({
      method: "PUT",
      path: "/node/{nodeID}/keys/{keyName}",
      operationId: "setNodeKey",
      summary: "Keep a public key for a node, such as that of a WireGuard endpoint",
      tag,
      access: { to: "resource", permissions: ["nodes::configure:apigw"], resource: onNode },
      params: NodeParams.extend({ keyName: z.string().max(256) }),
      body: { schema: ClientKey },
      answers: { ...changeAnswer, ...refusals, ...notFound, ...badBody },
      handle: async ({ params: { nodeID, keyName }, body, caller }) => {
        const name = KeyName.safeParse(keyName);
        if (!name.success) throw new Violations([`keyName: ${firstIssueText(name.error)}`]);
        const record = await nodes.setClientKey(nodeID, name.data, body, caller.name);
        const { [name.data]: shown } = shownKeys(record.keys, { [name.data]: body }, record.keyForm ?? "text");
        return changeResponse(record, caller, { keys: { [name.data]: shown } });
      },
    }),
    route({
      method: "DELETE",
      path: "/node/{nodeID}",
      operationId: "deleteNode",
      summary: "Remove a node permanently and revoke its access",
      tag,
      access: { to: "resource", permissions: ["nodes::delete"], resource: onNode },
      params: NodeParams,
      answers: { 200: { description: "Removed", schema: z.strictObject({}) }, ...refusals, ...notFound },
      handle: async ({ params: { nodeID }, caller }) => {
        await nodes.delete(nodeID, caller.name);
        return Response.json({});
      },
    }),
    route({
      method: "PUT",
      path: "/node/{nodeID}/lock",
      operationId: "lockNode",
      summary: "Lock a node to addresses; while it connects from any other, it is INACTIVE",
      tag,
      access: manageAccess,
      params: NodeParams,
      body: {
        schema: z.strictObject({ addresses: z.array(Block).min(1).max(MAX_LOCK_BLOCKS).optional() }).meta({
          description: "IPv4 and IPv6 addresses and blocks; default: the node's current address, for IPv6 its /64",
        }),
      },
      answers: { ...changeAnswer, ...refusals, ...notFound, ...badBody },
      handle: async ({ params: { nodeID }, body: { addresses }, caller }) => {
        const record = await nodes.setLock(
          nodeID,
          addresses === undefined ? "current" : [...new Set(addresses)],
          caller.name,
        );
        return changeResponse(record, caller, { lock: publicNode(record, "list")["lock"] });
      },
    }),
    route({
      method: "DELETE",
      path: "/node/{nodeID}/lock",
      operationId: "unlockNode",
      summary: "Remove the address lock of a node",
      tag,
      access: manageAccess,
      params: NodeParams,
      answers: { 200: { description: "Removed", schema: z.strictObject({}) }, ...refusals, ...notFound },
      handle: async ({ params: { nodeID }, caller }) => {
        await nodes.setLock(nodeID, undefined, caller.name);
        return Response.json({});
      },
    }),
    route({
      method: "PUT",
      path: "/v2/node/{nodeID}/lifecycle-state",
      operationId: "setLifecycleState",
      summary: "Change the lifecycle state of a node",
      tag,
      access: manageAccess,
      params: NodeParams,
      body: { schema: z.strictObject({ lifecycleState: LifecycleState }) },
      answers: { ...changeAnswer, ...refusals, ...notFound, ...badBody },
      handle: async ({ params: { nodeID }, body: { lifecycleState }, caller }) =>
        changeResponse(await nodes.setLifecycleState(nodeID, lifecycleState, caller.name), caller, { lifecycleState }),
    }),
  ];
}
