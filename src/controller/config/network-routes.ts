import { z } from "zod";
import { InputError } from "../../errors.ts";
import { hideSecrets } from "../../protocol/documents/secrets.ts";
import { SECTION_MAX_BYTES, SECTION_MAX_DEPTH } from "../../protocol/sections/sections.ts";
import { ClusterNetworkSection } from "../../protocol/sections/network/network.ts";
import { Fqdn, JsonObject } from "../../protocol/values/values.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { clusterChangeAnswer, clusterChangeResponse, clusterOf } from "../clusters/routes.ts";
import { NodeParams, refuseForAgents, withStoredSecrets } from "./routes.ts";
import { nodeOf } from "../nodes/routes.ts";
import { route, type Route } from "../http/route.ts";
import { badBody, Empty, notFound, refusals } from "../http/shapes.ts";
import type { NodeService } from "../nodes/service.ts";
import type { ClusterService } from "../clusters/service.ts";
import type { ConfigService } from "./service.ts";

const ClusterParams = z.object({ clusterFQDN: Fqdn });
const onCluster = ({ clusterFQDN = "" }: { readonly clusterFQDN?: string }): string => tgrn.cluster(clusterFQDN);
const clusterAccess = { to: "resource", permissions: ["nodes::configure:network"], resource: onCluster } as const;
const shown = {
  200: { description: "The section; every secret is an empty string", schema: JsonObject },
} as const;

export interface NetworkRouteDeps {
  readonly nodes: NodeService;
  readonly clusters: ClusterService;
  readonly config: ConfigService;
}

/** Routes of the `network` section: read for a node; read, replace and remove for a cluster. */
export function networkConfigRoutes({ nodes, clusters, config: sections }: NetworkRouteDeps): readonly Route[] {
  return [
    route({
      method: "GET",
      path: "/node/{nodeID}/config/network",
      operationId: "getNodeNetwork",
      summary: "Get the network section of a node",
      tag: "Node configuration",
      access: { to: "resource", permissions: ["nodes::read"], resource: ({ nodeID }) => tgrn.node(nodeID) },
      params: NodeParams,
      answers: { ...shown, ...refusals, ...notFound },
      handle: async ({ params: { nodeID } }) => {
        const { type, config, fqdn } = await nodeOf(nodes, nodeID);
        refuseForAgents("network", type);
        return sectionResponse(config.network, fqdn);
      },
    }),
    route({
      method: "GET",
      path: "/cluster/{clusterFQDN}/config/network",
      operationId: "getClusterNetwork",
      summary: "Get the network section of a cluster",
      tag: "Cluster configuration",
      access: { to: "resource", permissions: ["nodes::read"], resource: onCluster },
      params: ClusterParams,
      answers: { ...shown, ...refusals, ...notFound },
      handle: async ({ params: { clusterFQDN } }) => {
        const { config, fqdn } = await clusterOf(clusters, clusterFQDN);
        return sectionResponse(config.network, fqdn);
      },
    }),
    route({
      method: "PUT",
      path: "/cluster/{clusterFQDN}/config/network",
      operationId: "setClusterNetwork",
      summary: "Replace the network section of a cluster, which all members share",
      tag: "Cluster configuration",
      access: clusterAccess,
      params: ClusterParams,
      body: {
        schema: ClusterNetworkSection,
        root: "network",
        limits: { maxBytes: SECTION_MAX_BYTES, maxDepth: SECTION_MAX_DEPTH },
      },
      answers: { ...clusterChangeAnswer, ...refusals, ...notFound, ...badBody },
      handle: async ({ params: { clusterFQDN }, body, caller }) => {
        const changed = await sections.setClusterSection(clusterFQDN, "network", caller.name, ({ config }) =>
          withStoredSecrets("network", body, config.network),
        );
        return clusterChangeResponse(changed, caller, { config: hideSecrets({ network: body }) });
      },
    }),
    route({
      method: "DELETE",
      path: "/cluster/{clusterFQDN}/config/network",
      operationId: "deleteClusterNetwork",
      summary: "Remove the network section of a cluster",
      tag: "Cluster configuration",
      access: clusterAccess,
      params: ClusterParams,
      answers: { 200: { description: "Removed", schema: Empty }, ...refusals, ...notFound },
      handle: async ({ params: { clusterFQDN }, caller }) => {
        await sections.setClusterSection(clusterFQDN, "network", caller.name, () => undefined);
        return Response.json({});
      },
    }),
  ];
}

function sectionResponse(section: JsonObject | undefined, fqdn: string): Response {
  if (section === undefined) throw new InputError("not-found", `${fqdn} has no network section`);
  return Response.json(hideSecrets({ network: section })["network"]);
}
