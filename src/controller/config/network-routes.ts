import { z } from "zod";
import { InputError } from "../../errors.ts";
import { hideSecrets } from "../../protocol/documents/secrets.ts";
import { Fqdn, type JsonObject } from "../../protocol/values/values.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { clusterOf } from "../clusters/routes.ts";
import { NodeParams, refuseForAgents } from "./routes.ts";
import { nodeOf } from "../nodes/routes.ts";
import { route, type Route } from "../http/route.ts";
import { notFound, refusals } from "../http/shapes.ts";
import type { NodeService } from "../nodes/service.ts";
import type { ClusterService } from "../clusters/service.ts";
import { clusterSectionForm, sectionForm } from "./section-forms.ts";

const ClusterParams = z.object({ clusterFQDN: Fqdn });
const onCluster = ({ clusterFQDN = "" }: { readonly clusterFQDN?: string }): string => tgrn.cluster(clusterFQDN);
const shown = (schema: z.ZodType) =>
  ({ 200: { description: "The section; every secret is an empty string", schema } }) as const;

export interface NetworkRouteDeps {
  readonly nodes: NodeService;
  readonly clusters: ClusterService;
}

/** Routes that read the `network` section of a node and of a cluster. */
export function networkConfigRoutes({ nodes, clusters }: NetworkRouteDeps): readonly Route[] {
  return [
    route({
      method: "GET",
      path: "/node/{nodeID}/config/network",
      operationId: "getNodeNetwork",
      summary: "Get the network section of a node",
      tag: "Node configuration",
      access: { to: "resource", permissions: ["nodes::read"], resource: ({ nodeID }) => tgrn.node(nodeID) },
      params: NodeParams,
      answers: { ...shown(sectionForm("network")), ...refusals, ...notFound },
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
      answers: { ...shown(clusterSectionForm("network")), ...refusals, ...notFound },
      handle: async ({ params: { clusterFQDN } }) => {
        const { config, fqdn } = await clusterOf(clusters, clusterFQDN);
        return sectionResponse(config.network, fqdn);
      },
    }),
  ];
}

function sectionResponse(section: JsonObject | undefined, fqdn: string): Response {
  if (section === undefined) throw new InputError("not-found", `${fqdn} has no network section`);
  return Response.json(hideSecrets({ network: section })["network"]);
}
