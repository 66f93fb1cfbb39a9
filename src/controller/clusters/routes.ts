import { z } from "zod";
import { InputError } from "../../errors.ts";
import { Fqdn, NodeName, Tags, Uid } from "../../protocol/values/values.ts";
import { ORGANIZATION, tgrn } from "../access/policies/permissions.ts";
import { hideSecrets } from "../../protocol/documents/secrets.ts";
import type { Caller } from "../http/caller.ts";
import { route, type Route } from "../http/route.ts";
import { badBody, ClusterPart, Empty, notFound, PublicCluster, refusals } from "../http/shapes.ts";
import type { ClusterRecord } from "./records.ts";
import type { ClusterService } from "./service.ts";

const tag = "Clusters";
const ClusterParams = z.object({ clusterFQDN: Fqdn });
const onCluster = ({ clusterFQDN }: { readonly clusterFQDN: string }): string => tgrn.cluster(clusterFQDN);
const isEmpty = (value: object): boolean => Object.keys(value).length === 0;
/** Body of a new cluster. Existing clients send the whole record with nothing set but its name. */
const NewCluster = z
  .strictObject({
    name: NodeName,
    tags: Tags.refine(isEmpty, "must be empty: PUT /cluster/{clusterFQDN}/tags sets them").nullish(),
    device: z.record(z.string().max(64), z.unknown()).nullish().meta({ description: "Ignored" }),
    config: z
      .record(z.string().max(64), z.unknown())
      .refine(isEmpty, "must be empty: each section has a path below /cluster/{clusterFQDN}/config")
      .nullish(),
  })
  .meta({ examples: [{ name: "pair" }] });

/** Returns a cluster. @throws {InputError} `not-found` */
export async function clusterOf(clusters: Pick<ClusterService, "get">, fqdn: string): Promise<ClusterRecord> {
  const record = await clusters.get(fqdn);
  if (record === undefined) throw new InputError("not-found", `there is no cluster ${fqdn}`);
  return record;
}

/** Returns a cluster with those of its members that `mayRead` reports, by resource name. */
function publicCluster(record: ClusterRecord, mayRead: (resource: string) => boolean): z.infer<typeof PublicCluster> {
  const { fqdn, name, domain, createdAt, tags, config, members } = record;
  const own = { fqdn, name, domain, tgrn: tgrn.cluster(fqdn), created_at: createdAt, tags };
  return { ...own, config: hideSecrets(config), members: members.filter((uid) => mayRead(tgrn.node(uid))) };
}

/** Returns the response to a change: the whole cluster if the caller may read it, otherwise its name and the written part. */
export async function clusterChangeResponse(
  record: ClusterRecord,
  caller: Caller,
  part: Readonly<Record<string, unknown>>,
): Promise<Response> {
  const mayRead = await caller.among(["nodes::read"]);
  const isShown = mayRead(tgrn.cluster(record.fqdn));
  return Response.json(isShown ? publicCluster(record, mayRead) : { fqdn: record.fqdn, ...part });
}

/** Response of `clusterChangeResponse`. */
export const clusterChangeAnswer = {
  200: {
    description: "The cluster; without `nodes::read` on it, only its `fqdn` and the written part",
    schema: z.union([PublicCluster, ClusterPart]),
  },
} as const;

export interface ClusterRouteDeps {
  readonly clusters: ClusterService;
}

/** Routes of clusters; a node joins and leaves one through `PUT /node/{nodeID}`. */
export function clusterRoutes({ clusters }: ClusterRouteDeps): readonly Route[] {
  const cluster = { 200: { description: "The cluster", schema: PublicCluster }, ...refusals };
  return [
    route({
      method: "GET",
      path: "/cluster",
      operationId: "listClusters",
      summary: "List clusters",
      tag,
      access: { to: "kind", permissions: ["nodes::read"], kind: tgrn.cluster("") },
      answers: {
        200: { description: "The clusters the caller may read", schema: z.array(PublicCluster) },
        ...refusals,
      },
      handle: async ({ caller }) => {
        const mayRead = await caller.among(["nodes::read"]);
        const listed = (await clusters.all()).filter(({ fqdn }) => mayRead(tgrn.cluster(fqdn)));
        return Response.json(listed.map((record) => publicCluster(record, mayRead)));
      },
    }),
    route({
      method: "POST",
      path: "/cluster",
      operationId: "createCluster",
      summary: "Create a cluster without members",
      tag,
      access: { to: "resource", permissions: ["nodes::cluster"], resource: () => ORGANIZATION },
      body: { schema: NewCluster },
      answers: {
        200: { description: "The cluster", schema: PublicCluster },
        ...refusals,
        ...badBody,
      },
      handle: async ({ body, caller }) =>
        Response.json(publicCluster(await clusters.create({ name: body.name }, caller.name), () => false)),
    }),
    route({
      method: "GET",
      path: "/cluster/{clusterFQDN}",
      operationId: "getCluster",
      summary: "Get a cluster",
      tag,
      access: { to: "resource", permissions: ["nodes::read"], resource: onCluster },
      params: ClusterParams,
      answers: { ...cluster, ...notFound },
      handle: async ({ params: { clusterFQDN }, caller }) =>
        Response.json(publicCluster(await clusterOf(clusters, clusterFQDN), await caller.among(["nodes::read"]))),
    }),
    route({
      method: "DELETE",
      path: "/cluster/{clusterFQDN}",
      operationId: "deleteCluster",
      summary: "Remove a cluster and its configuration; its members leave it",
      tag,
      access: { to: "resource", permissions: ["nodes::cluster"], resource: onCluster },
      params: ClusterParams,
      answers: {
        200: { description: "Removed", schema: Empty },
        ...refusals,
        ...notFound,
      },
      handle: async ({ params: { clusterFQDN }, caller }) => {
        await clusters.delete(clusterFQDN, caller.name);
        return Response.json({});
      },
    }),
    route({
      method: "PUT",
      path: "/cluster/{clusterFQDN}/active/{nodeID}",
      operationId: "promoteClusterMember",
      summary: "Make a member the configured active one",
      tag,
      access: { to: "resource", permissions: ["nodes::cluster"], resource: onCluster },
      params: ClusterParams.extend({ nodeID: Uid }),
      answers: { ...clusterChangeAnswer, ...refusals, ...notFound },
      handle: async ({ params: { clusterFQDN, nodeID }, caller }) =>
        clusterChangeResponse(await clusters.promote(clusterFQDN, nodeID, caller.name), caller, {}),
    }),
  ];
}
