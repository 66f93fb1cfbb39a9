import { z } from "zod";
import { hideSecrets } from "../../protocol/documents/secrets.ts";
import {
  clusterSectionSchemas,
  SECTION_MAX_BYTES,
  SECTION_MAX_DEPTH,
  sectionSchemas,
  type SectionName,
} from "../../protocol/sections/sections.ts";
import { Fqdn, JsonObject } from "../../protocol/values/values.ts";
import { tgrn } from "../access/policies/permissions.ts";
import { clusterChangeAnswer, clusterChangeResponse } from "../clusters/routes.ts";
import { clusterSectionForm } from "./section-forms.ts";
import { route, type Route } from "../http/route.ts";
import { badBody, Empty, notFound, refusals } from "../http/shapes.ts";
import { unsupportedReason, WARNING_HEADER } from "./not-applied.ts";
import { warned, withStoredSecrets } from "./routes.ts";
import { takingUnset } from "./unset.ts";
import type { ConfigService } from "./service.ts";

const ClusterParams = z.object({ clusterFQDN: Fqdn });

/** Path and operation of a whole section that members inherit. */
interface ClusterSectionPath {
  readonly section: SectionName;
  readonly path: string;
  readonly operation: string;
}

const CLUSTER_SECTION_PATHS: readonly ClusterSectionPath[] = [
  { section: "network", path: "/config/network", operation: "Network" },
  { section: "apigw", path: "/config/ztnagw", operation: "Ztnagw" },
];

export interface ClusterSectionRouteDeps {
  readonly config: ConfigService;
}

/** Routes that replace and remove whole sections of a cluster. */
export function clusterConfigRoutes(deps: ClusterSectionRouteDeps): readonly Route[] {
  return CLUSTER_SECTION_PATHS.flatMap((at) => [replace(deps, at), remove(deps, at)]);
}

function replace({ config: sections }: ClusterSectionRouteDeps, at: ClusterSectionPath): Route {
  const { section, path, operation } = at;
  const schema: z.ZodType<JsonObject> = clusterSectionSchemas[section] ?? sectionSchemas[section] ?? JsonObject;
  return route({
    method: "PUT",
    path: `/cluster/{clusterFQDN}${path}`,
    operationId: `setCluster${operation}`,
    summary: `Replace the ${section} section of a cluster, which all members share`,
    tag: "Cluster configuration",
    access: accessTo(section),
    params: ClusterParams,
    body: {
      schema: takingUnset(schema),
      described: clusterSectionForm(section),
      root: section,
      limits: { maxBytes: SECTION_MAX_BYTES, maxDepth: SECTION_MAX_DEPTH },
    },
    answers: {
      200: { ...clusterChangeAnswer[200], headers: warned },
      ...refusals,
      ...notFound,
      ...badBody,
    },
    handle: async ({ params: { clusterFQDN }, body, caller }) => {
      const changed = await sections.setClusterSection(clusterFQDN, section, caller.name, ({ config }) =>
        withStoredSecrets(section, body, config[section]),
      );
      const response = await clusterChangeResponse(changed, caller, { config: hideSecrets({ [section]: body }) });
      const warning = unsupportedReason(section);
      if (warning !== undefined) response.headers.set(WARNING_HEADER, warning);
      return response;
    },
  });
}

function remove({ config: sections }: ClusterSectionRouteDeps, at: ClusterSectionPath): Route {
  const { section, path, operation } = at;
  return route({
    method: "DELETE",
    path: `/cluster/{clusterFQDN}${path}`,
    operationId: `deleteCluster${operation}`,
    summary: `Remove the ${section} section of a cluster`,
    tag: "Cluster configuration",
    access: accessTo(section),
    params: ClusterParams,
    answers: { 200: { description: "Removed", schema: Empty }, ...refusals, ...notFound },
    handle: async ({ params: { clusterFQDN }, caller }) => {
      await sections.setClusterSection(clusterFQDN, section, caller.name, () => undefined);
      return Response.json({});
    },
  });
}

const accessTo = (section: SectionName) =>
  ({
    to: "resource",
    permissions: [`nodes::configure:${section}`],
    resource: ({ clusterFQDN = "" }: { readonly clusterFQDN?: string }) => tgrn.cluster(clusterFQDN),
  }) as const;
